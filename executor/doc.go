// Package executor takes one call from request to receipt: it asks the ledger for an attempt and etcd for the claim, both
// at once, performs the effect, reports how it ended, and does what the rules make of that.
//
// The right to act is one record: the open attempt in the ledger, held by the executor's session in etcd. The claim is a key
// in etcd that keeps duplicates from asking; it proves nothing, and losing it harms nothing. An attempt ends by its report,
// by the word of its opener that nothing was sent, by the proof that its session has ended, or by its time-out. Package
// flight has these rules, so this package holds nothing that a crash could lose.
//
// # Files
//
//	executor.go   the story of one call, top to bottom; start and stop of the executor
//	trip.go       callers of one key in this process share one trip; a caller that leaves ends only its own wait
//	wait.go       waiting for the end of somebody else's attempt
//	open.go       the Open and the claim; abandoning an Open so that it opens nothing later
//	attempt.go    the handler: its context, the last look at trust, time-outs, cancellation
//	land.go       the report, and what the ledger made of it; a report that is late or pending
//	doubt.go      look-ups
//	sweep.go      the sweeper: it ends the attempts of sessions that have ended, and what is overdue
//	ports.go      what is needed of the ledger
//	answer.go, results.go, events.go
//	              results and errors for callers; events for logs, metrics and tests
//	lazy.go       a context that costs nothing until somebody waits for its end
//	crew.go, runners.go
//	              what is under way, and on which goroutine
//
// Remote callers, who perform their effects themselves, are served by package remote.
//
// # What is true if the process dies on this line
//
// The lines are those at which Config.Crash is called. Each has transcripts in testdata/crash, one for every recovery, in
// which the process dies there and the caller comes back through another one. The provider's own count of effects is the
// judge.
//
//	dies           claim    attempt  effect   what follows
//	before-open    no       no       no       nothing happened; the retry starts from nothing
//	during-open    perhaps  no       no       the same: a claim without an attempt keeps nobody from the key
//	after-open     perhaps  open     no       a doubt, though nothing was sent: nobody else can know. hold: a person.
//	                                          resend: attempt 2 with the same key. verify: a look-up after the settle
//	                                          delay, which finds nothing, then attempt 2
//	before-send    yes      open     no       the same
//	during-effect  yes      open     perhaps  a doubt. hold: a person. resend: the provider knows our key and answers as
//	                                          the first time. verify: the look-up finds it
//	after-effect   yes      open     yes      the same; the answer is lost with the process
//	before-report  yes      open     yes      the same
//	in the report  yes      open     yes      committed or spooled: as the next line. Neither: as the line before
//	after-report   yes      closed   yes      the receipt is replayed, whether the claim is still there or not
//	before-release yes      closed   yes      the same; the claim ends with its session
//
// A doubt begins when the session has ended in etcd, at most a TTL after the last renewal, and the sweeper has told the
// ledger so.
//
// A process that is not dead but frozen wakes up and believes. Before it starts an effect it looks at its trust, which ends
// earlier than its session; between that look and the network nothing in this process can help, which is why the promises
// differ by recovery. A late report of such a process is accepted as long as nothing newer was opened, and is kept as
// evidence otherwise.
package executor
