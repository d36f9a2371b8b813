// Package flightdtest is flightd for your own tests: the real executor over a ledger and leases in memory, without disk,
// network or etcd. What your handlers see is what they see in production, because the rules are the same code and the
// ledger takes the same exam as the real one; the levers bring about what is rare there. Code that gets a client in
// production has the same answers, but for the calls that a client refuses (see its Do), and for effect.RetryAfter: a
// client leaves that pause to its caller, as it does retries.
//
//	fd := flightdtest.New(t)
//	result, err := fd.Do(ctx, call, handler)       // runs the handler
//	result, err = fd.Do(ctx, call, handler)        // replays its receipt
//
// The levers, and what they are for:
//
//	fd.Ledger.LoseAnswers(1)      the next command is applied, its answer is lost: nothing may happen twice
//	fd.Ledger.Cut(), Heal()       the ledger refuses: no effect starts; an effect that has happened is *effect.Unrecorded
//	                              and recorded at Heal
//	fd.Ledger.Stall(), Heal()     the same, but nobody knows what became of what was sent: a lost quorum
//	fd.Ledger.Before(f)           f is called before each command: act at exactly that moment
//	fd.Ledger.Advance(d)          the ledger's time: provider windows and retentions end
//	fd.Ledger.Follower(), Lag(n)  another node's view, n commands late: fd.Restart(t, Options{Follower: …})
//	fd.Leases.Freeze(), Thaw()    nothing reaches etcd, as under SIGSTOP: the lease is lost in mid-effect
//	fd.Leases.Partition(cut)      one direction of the connection to etcd is dead
//	fd.Leases.Suspend(d)          the machine slept: trust is gone before a timer fires
//	fd.Leases.HoldElsewhere(…)    somebody on another node has the key
//	fd.Restart(t, …)              another process on the same ledger and leases: a crash, a deploy, a second node
//	fd.Resolve(…), fd.Cancel(…)   what a person does with `flightd doubt resolve` and `flightd flights cancel`
//
// Everything reads package time, so in a testing/synctest bubble time is virtual: settle delays, time-outs and expiring
// leases cost nothing. End your handlers before the test ends; New closes everything then, levers included.
package flightdtest
