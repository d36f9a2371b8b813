// Package pebblelog keeps a raft log and raft's stable values in a Pebble database of their own.
//
// It is raft's LogStore and StableStore. Everything that raft calls durable is durable here when the call returns:
// StoreLogs writes one batch and syncs it once, however many entries it holds. Reads verify block checksums.
//
// What the system refuses to a write-ahead log ends the process before whoever waits for it is answered: see refused.go.
//
// # If the process dies
//
//	in StoreLogs, before the sync   none, some or all of the batch's write is on disk; Pebble drops a torn batch whole,
//	                                so the log ends at an older entry or holds the whole batch. Nobody was told that
//	                                it was stored, so nobody was told that it was committed by us.
//	in StoreLogs, after the sync    the batch is there. Raft may commit it after a restart though the proposer saw an
//	                                error: that outcome is unknown to the proposer, never a "no".
//	in DeleteRange                  the range is there or gone, whole.
//	in Set, SetUint64               the old or the new value is there. Raft answers a vote only after it.
//	in Bootstrap                    term and first entry are there together or not at all.
package pebblelog
