// Package flightdtest is flightd for your own tests: the real executor over a ledger and leases in memory, without
// disk, network or etcd. What your handlers see is what they see in production, because the rules are the same code;
// the levers bring about what is rare there: a lost answer, a dead holder, a ledger out of reach.
//
//	fd := flightdtest.New(t)
//	result, err := fd.Do(ctx, call, handler)       // runs the handler
//	result, err = fd.Do(ctx, call, handler)        // replays its receipt
//	fd.Ledger.LoseAnswers(1)                       // the next command is applied, its answer lost
//	fd.Leases.Freeze()                             // nothing reaches etcd, as under SIGSTOP
//
// It reads package time, so in a testing/synctest bubble all of its time is virtual.
package flightdtest
