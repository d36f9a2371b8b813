// Package leasetest has the fake of package lease, with fault injection, and the conformance suite that every
// implementation passes.
//
// The fake is the real Lessor over an etcd in memory (Etcd): batches, renewals, trust and guard are those of
// production. It uses package time only, so that a test in a testing/synctest bubble can wait for hours of virtual
// time.
//
// Faults are injected into a node's connection (Freeze, Partition, LoseAnswers, DelayCommits, SlowAnswers, LoseHints,
// Suspend), into the etcd (Etcd.Expire, Etcd.SetRevision, Etcd.SetCounter, Etcd.SetGuardKey, Etcd.CorruptClaim) and
// into the ledger (Ledger.Record, Ledger.RaiseEpoch).
package leasetest
