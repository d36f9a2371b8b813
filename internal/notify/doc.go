// Package notify tells people of what waits for them: it posts doubts, overlaps, waiting approvals, quarantined reports and old queues to
// the targets that the ledger stores as documents. Only the node that leads the ledger runs it.
//
// For each target, the ledger stores a position in the feed and the pending messages. Every event up to the position was answered 2xx or is
// counted in a pending message. If the process dies, or another node leads, the pending messages and the events after the position are sent
// again. Their webhook-ids are the same, unless more events were counted meanwhile. So every event is counted in at least one message that
// the target has taken, and a receiver that remembers ids handles each message once. Events are read from the applied log, so there is no
// message about an uncommitted event.
package notify
