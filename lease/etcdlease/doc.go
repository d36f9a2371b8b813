// Package etcdlease keeps claims in etcd: it is the lease.Registry that production uses, and New wires it to the rules of
// package lease.
//
// Nothing here decides anything. Commit carries a batch in one transaction (commit.go says how), always comparing the
// guard key; the rest are reads, watches and the lives of etcd leases. The library's own sessions, mutexes and
// background renewals are not used: their deadlines count from the receipt of an answer, and two mutexes of one session
// both lock.
//
// Compactor looks after the history of an embedded etcd, which nobody else would shorten. Whoever configures that
// server should know that each of its raft entries is a batch of claims here, tens of kilobytes long: a small
// SnapshotCount and SnapshotCatchUpEntries keep its memory small, and a large CompactionBatchLimit lets compactions keep
// up with the claims.
package etcdlease
