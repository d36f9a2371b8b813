// Package executor takes one flight from request to receipt: it claims the key, asks the ledger for an attempt, performs
// the effect, reports how it ended, and does what the rules make of that. The lease keeps the crowd away, the ledger
// decides, and the token travels with the effect; this package only carries questions and answers between them, and so
// it holds nothing that a crash could lose.
//
// # The room
//
// Two doors lead in. [Executor.Do] runs a handler of this process. The [Desk] serves callers that perform the effect
// themselves: they open, act, and report.
//
//	executor.go   the story of one call, top to bottom; birth and death of the executor
//	trip.go       callers of one key in this process share one trip; who goes away ends only its own wait
//	claim.go      the right to fly, and waiting for somebody else's
//	open.go       asking the ledger until the answer is known; giving up an Open so that it opens nothing later
//	attempt.go    the handler: its own context, trust right before the send, time-outs, cancellation; it is called by
//	              internal/caller, which the client shares
//	land.go       the report, and what the ledger made of it; a report that is late or pending
//	doubt.go      look-ups, and settle delays by this process's own clock
//	sweep.go      dead and hung holders are noticed though nobody asks
//	desk*.go      caller-run: open, report, verdict, sessions; guests.go and unstick.go: what the desk remembers, and
//	              how it does without
//	ports.go      the few verbs needed of the ledger; package executortest has their exam
//	answer.go     flights and neighbours' errors in the words of package effect
//	events.go, results.go
//	              what is told to logs, metrics and tests, and in which words
//	lazy.go       a context that costs nothing until somebody waits for its end
//	crew.go, runners.go
//	              who is under way, on which goroutine, and for how long
//
// Goroutines: a trip flies on one of the runners, a handler with a time-out on one more; work in the background belongs
// to the crew. A handler that ends its runner, as a failed require in a test does, leaves the trip to another one. Close
// waits for all of them, and for none longer than its context and Config.HungAfter allow.
//
// # What is true if the process dies on this line
//
// The lines are those at which Config.Crash is called. Each has transcripts in testdata/crash, one for every recovery,
// in which the process dies there and the caller comes back through another one. The provider's own count of effects is
// the judge.
//
//	dies                  claim   attempt  effect    what follows
//	before-claim          no      no       no        nothing happened; the retry starts from nothing
//	after-claim           yes     no       no        nothing happened; the retry waits until the claim has expired
//	after-open            yes     open     no        a doubt, though nothing was sent: nobody else can know. hold: a
//	                                                 person. resend: attempt 2 with the same key. verify: a look after
//	                                                 the settle delay, which finds nothing, then attempt 2
//	before-send           yes     open     no        the same
//	during-effect         yes     open     perhaps   a doubt. hold: a person. resend: the provider knows our key and
//	                                                 answers as the first time. verify: the look finds it
//	after-effect          yes     open     yes       the same; the answer is lost with the process
//	before-report         yes     open     yes       the same
//	during the report     yes     open     yes       committed or spooled: as the next line. Neither: as the last one
//	after-report          yes     closed   yes       the receipt stands and is replayed, while the claim still stands
//	before-release        yes     closed   yes       the same; the claim expires
//
// # The same for the desk
//
// The caller lives, keeps its session and repeats what was not answered, to whatever process answers: testdata/desk,
// flightd-*.
//
//	flightd dies          claim   attempt  what follows
//	before-claim          no      no       the repeat of the open starts from nothing
//	after-claim           yes     no       the claim is of the caller's own session, which lives on: it is removed once
//	                                       nobody can make use of it any more, half a TTL later, and the repeat opens.
//	                                       Where none comes, somebody else gets the key who has met that claim for
//	                                       eleven minutes
//	after-open            yes     open     the same session and nonce get the same attempt and token, where the ledger
//	                                       says that it still stands: no doubt. Without a
//	                                       session of the caller's the nonce alone finds it, as long as the session made
//	                                       for it lives
//	before-report         yes     open     the repeat of the report, by its token alone, is accepted
//	after-report          yes     closed   the repeat is accepted once more and changes nothing
//	before-release        yes     closed   the same; the dead process's claim is removed by name with that repeat
//
// The caller dies, alone or together with flightd: testdata/desk, caller-* and both-*. Its session is renewed by nobody;
// the sweeper notices unasked.
//
//	the caller dies       effect    what follows
//	before-send           no        a doubt, by its recovery: hold: in doubt at once. resend: free for the next opener,
//	                                who gets attempt 2 and the same idempotency key. verify: the next opener is sent to
//	                                look
//	during-effect         yes       the same
//	before-report         yes       the same
//	after-report          yes       the receipt stands
//
// A process that is not dead but frozen wakes up believing. Before it starts an effect it looks at its trust, which ends
// earlier than its lease; between that look and the network nothing in this process can help, which is why the promises
// differ by recovery. What such a process reports late is accepted as long as nothing newer was opened, and is kept as
// evidence otherwise.
package executor
