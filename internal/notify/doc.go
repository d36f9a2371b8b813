// Package notify tells people of what waits for them: it posts doubts, overlaps, waiting approvals, quarantined reports and old queues to
// the targets that the ledger stores as documents. Only the node that leads the ledger runs it.
//
// The ledger stores, for each target, the position in the feed up to which the target has answered 2xx. If the process dies, or another
// node leads, what came after that position is sent again, under the same webhook-id. So each event reaches a target at least once, and a
// receiver that remembers ids takes it once. An event is read from the applied log: a message about what was never committed is impossible.
package notify
