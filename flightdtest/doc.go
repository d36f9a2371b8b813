// Package flightdtest is flightd for your own tests: the real executor over a ledger and leases in memory, without
// disk, network or etcd. Handlers see the same behaviour as in production: the rules are the same code, and the ledger
// passes the same conformance suite as the real one. Faults can be injected. Code that uses a client in production gets
// the same answers, with two exceptions: a client rejects some calls (see its Do), and it leaves retries, and the pause
// of effect.RetryAfter, to its caller.
//
//	fd := flightdtest.New(t)
//	result, err := fd.Do(ctx, call, handler)       // runs the handler
//	result, err = fd.Do(ctx, call, handler)        // replays its receipt
//
// The faults:
//
//	fd.Ledger.LoseAnswers(1)      the next command is applied and its answer is lost: nothing may happen twice
//	fd.Ledger.Cut(), Heal()       the ledger rejects commands: no effect starts; an effect that has happened is
//	                              *effect.Unrecorded, and is recorded at Heal
//	fd.Ledger.Stall(), Heal()     the same, but the outcome of each command is unknown: a lost quorum
//	fd.Ledger.Before(f)           f is called before each command: inject a fault at exactly that moment
//	fd.Ledger.Advance(d)          ledger time passes: provider windows and retentions end
//	fd.Ledger.Follower(), Lag(n)  another node's view, n commands late: fd.Restart(t, Options{Follower: …})
//	fd.Leases.Freeze(), Thaw()    nothing reaches etcd, as under SIGSTOP: the lease is lost during the effect
//	fd.Leases.Partition(cut)      one direction of the connection to etcd fails
//	fd.Leases.Suspend(d)          the machine was suspended: trust ends before a timer fires
//	fd.Leases.ClaimFromOtherNode(…)  another node has claimed the key
//	fd.Restart(t, …)              another process on the same ledger and leases: a crash, a deploy, a second node
//	fd.Resolve(…), fd.Cancel(…)   the commands `flightd doubt resolve` and `flightd flights cancel`
//
// All code uses package time, so in a testing/synctest bubble time is virtual: settle delays, timeouts and expiring
// leases take no real time. Handlers must return before the test ends; then New heals all faults and closes everything.
package flightdtest
