// Package notify tells people of what waits for them: it posts doubts, overlaps, waiting approvals, quarantined reports and old queues to
// the targets that the ledger stores as documents. Only the node that leads the ledger runs it.
//
// The ledger stores, for each target, a position in the feed and the pending messages: every event up to the position was answered 2xx, or is
// in the count of a pending message. If the process dies, or another node leads, the pending messages and what came after the position are
// sent again, under the same webhook-ids unless more was counted meanwhile. So each event is in the count of at least one message that the
// target has taken, and a receiver that remembers ids takes each message once. An event is read from the applied log: a message about what was never committed is impossible.
package notify
