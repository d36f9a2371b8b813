// Package leasetest has the fake of package lease, with levers, and the suite that every implementation passes.
//
// The fake is the real Desk over an etcd in memory (World): queues, batches, renewals, trust and guards are those of
// production. It reads package time only, so that in a testing/synctest bubble hours cost nothing. Levers on a node's
// connection (Freeze, Partition, LoseAnswers, Delay, Slow, LoseHints, Suspend), on the etcd (World.Expire,
// World.SetRevision, World.SetGuardKey) and on the ledger (Ledger.Saw, Ledger.RaiseEpoch) bring about what real life does.
package leasetest
