// Package executor runs effects in this process: it is package runner's transport over the claims in etcd and the ledger. It
// asks the ledger for an attempt and etcd for the claim, both at once, and brings the report and the verdict of a look-up.
//
// The right to act is one record: the open attempt in the ledger, held by the executor's session in etcd. The claim is a key
// in etcd that keeps duplicates from asking; it proves nothing, and losing it harms nothing. An attempt ends by its report,
// by the word of its opener that nothing was sent, by the proof that its session has ended, or by its time-out. Package
// flight has these rules, so this package holds nothing that a crash could lose.
//
// # Files
//
//	executor.go   configuration, start and stop; a receipt that is stored is answered at once
//	open.go       waiting for the attempts of others; the Open and the claim
//	attempt.go    the report and the verdict; abandoning an Open so that it opens nothing later; a report that is pending
//	sweep.go      the sweeper: it ends the attempts of sessions that have ended, and what is overdue
//	ports.go      what is needed of the ledger
//	events.go     events, and words for how calls end, for logs, metrics and tests
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
