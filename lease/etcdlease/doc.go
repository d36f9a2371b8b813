// Package etcdlease implements lease.Store on etcd. New connects it with the rules of package lease.
//
// The package decides nothing. Commit sends a batch as one transaction that compares the guard key (commit.go). The
// other methods are reads, watches, and the grants, renewals and revocations of etcd leases. The sessions, mutexes and
// background renewals of etcd's client library are not used: their deadlines count from the receipt of an answer, and
// two mutexes of one session can both be locked.
//
// Compactor compacts the history of an embedded etcd, which no other component does. Each raft entry of that server is
// a batch of claims, tens of kilobytes long. So its configuration should have a small SnapshotCount and
// SnapshotCatchUpEntries, which bound its memory, and a large CompactionBatchLimit, so that compactions keep up with
// claims.
package etcdlease
