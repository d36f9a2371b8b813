// Package executor runs effects in this process. It implements package runner's Transport over the claims in etcd and
// over the ledger: it proposes an Open to the ledger and claims the key in etcd, both at once, and sends the report of
// the attempt or the finding of a look-up.
//
// The right to act is one record: the open attempt in the ledger, held by the executor's session in etcd. The claim is
// a key in etcd that keeps duplicates from proposing. A claim proves nothing, and its loss harms nothing. An attempt
// ends by its report, by an abandon of its opener (nothing was sent), by the proof that its session has ended, or by
// its time-out. Package flight has these rules, so this package holds no state that a crash could lose.
//
// # Files
//
//	executor.go   configuration, start and stop; a stored receipt is returned at once
//	open.go       the wait for attempts of other holders; the Open and the claim
//	attempt.go    the report and the finding; abandoning an Open so that it never opens an attempt; a report that is pending
//	sweep.go      the sweeper: it ends the attempts of ended sessions, and overdue attempts
//	ports.go      the ports to the ledger
//	events.go     events, and the labels of how calls end, for logs, metrics and tests
//
// Package remote serves remote callers, which perform their effects themselves.
//
// # What is true if the process dies on this line
//
// Config.Crash is called at these lines. testdata/crash has a transcript of each line for each recovery: the process
// dies there, and the caller retries at another process. The provider's own count of effects is the judge.
//
//	dies           claim    attempt  effect   consequence
//	before-open    no       no       no       nothing happened; the retry starts from nothing
//	during-open    perhaps  no       no       the same: a claim without an attempt does not block the key
//	after-open     perhaps  open     no       in doubt, although nothing was sent: no other process knows that. hold: a
//	                                          person decides. resend: attempt 2 with the same idempotency key. verify: a
//	                                          look-up after the settle delay finds nothing, then attempt 2
//	before-send    yes      open     no       the same
//	during-effect  yes      open     perhaps  in doubt. hold: a person decides. resend: the provider knows the idempotency
//	                                          key and returns the first answer again. verify: the look-up finds the effect
//	after-effect   yes      open     yes      the same; the answer is lost with the process
//	before-report  yes      open     yes      the same
//	in the report  yes      open     yes      committed or spooled: as the next line. Neither: as the line before
//	after-report   yes      closed   yes      the receipt is replayed, whether the claim still exists or not
//	before-release yes      closed   yes      the same; the claim ends with its session
//
// The doubt begins when the session has ended in etcd, at most a TTL after its last renewal, and the sweeper has
// proposed that end to the ledger.
//
// A frozen process is not dead: it resumes and still believes that it may act. The executor checks its trust, which
// ends earlier than the session, right before an effect starts. No code in this process can help between that check and
// the network; therefore the guarantees differ by recovery. A late report of such a process is accepted unless a newer
// attempt was opened, and is stored as evidence otherwise.
package executor
