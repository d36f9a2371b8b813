// Package pebblelog keeps a raft log and raft's stable values in a Pebble database of their own.
//
// It implements raft's LogStore and StableStore. A write that raft needs to be durable is durable when the call
// returns: StoreLogs writes one batch and syncs it once, however many entries the batch holds. Reads verify block
// checksums.
//
// If the operating system rejects a write to the write-ahead log of an open database, the process ends before the
// waiting caller gets an answer: see walfs.go.
//
// # What is true if the process dies
//
//	in StoreLogs, before the sync   None, some or all bytes of the batch are on disk. Pebble discards a torn batch as a
//	                                whole, so the log ends at an older entry or holds the whole batch. StoreLogs has not
//	                                returned, so this node has not acknowledged the entries.
//	in StoreLogs, after the sync    The batch is stored. Raft may commit it after a restart although the proposer saw an
//	                                error: the outcome is unknown to the proposer, never a failure.
//	in DeleteRange                  All entries of the range are stored, or none of them.
//	in Set, SetUint64               The old or the new value is stored. Raft answers a vote only after the call.
//	in Bootstrap                    Term and first entry are stored together or not at all.
package pebblelog
