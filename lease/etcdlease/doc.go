// Package etcdlease keeps sessions and claims in etcd: it is the lease.Store of production, and New connects it with the
// rules of package lease.
//
// Nothing here decides anything. Commit sends a batch as one transaction that compares the guard key (commit.go); the
// rest are reads, watches, and the grants, renewals and revocations of etcd leases. The library's own sessions, mutexes
// and background renewals are not used: their deadlines count from the receipt of an answer, and two mutexes of one
// session both lock.
//
// Compactor compacts the history of an embedded etcd, which nobody else would shorten. Whoever configures that server
// should know that each of its raft entries is a batch of claims here, tens of kilobytes long: a small SnapshotCount and
// SnapshotCatchUpEntries keep its memory small, and a large CompactionBatchLimit lets compactions keep up with the claims.
package etcdlease
