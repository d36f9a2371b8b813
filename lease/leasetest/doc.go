// Package leasetest has the fake of package lease, with levers, and the conformance suite that every implementation
// passes.
//
// The fake is the real Lessor over an etcd in memory (World): batches, renewals, trust and guards are those of
// production. It reads package time only, so that in a testing/synctest bubble hours cost nothing. Levers on a node's
// connection (Freeze, Partition, LoseAnswers, Delay, Slow, LoseHints, Suspend), on the etcd (World.Expire,
// World.SetRevision, World.SetCounter, World.SetGuardKey, World.Spoil) and on the ledger (Ledger.Record,
// Ledger.RaiseEpoch) cause what happens in real life.
package leasetest
