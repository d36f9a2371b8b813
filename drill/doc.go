// Package drill kills real processes at every crash point of a flight, and counts the effects that really happened.
//
// Three processes take part: a small CRM that records every effect (crm.go), flightd itself, and a caller that acts
// through the Go client (caller.go). All three are this program, executed again. A run (plan.go) is one intent, one
// recovery policy and one disturbance: SIGKILL for the caller, flightd or both at a named crash point, or a fault of
// the CRM. Afterwards flightd is restarted on the same data if it was killed, a new caller retries with the same key,
// the drill resolves a held flight as a person would, and collects the facts (runner.go). A pure function decides
// whether the facts keep the promises (check.go).
//
// # Crash points
//
//	point          the caller is killed or paused                flightd is killed
//	before-open    before it sends the :open                     before it claims in etcd and proposes the attempt
//	during-open    after the :open was sent, before the answer   after the claim was sent, before the ledger is asked
//	after-open     after the answer proceed                      after the attempt is stored, before the answer
//	before-send    after the request is built, before the dial   while the caller is paused there
//	after-effect   at the CRM's answer, unread                   while the caller is paused there
//	before-report  after it has read the CRM's answer            after it has received the report
//	after-report   after the report was answered                 after the report is stored, before the answer
//	before-release after the receipt, while its session lives    before it releases the claim
//
// Flightd kills itself at the points in its own code. At the points that only the caller has, the caller pauses, the
// drill kills flightd, and the caller continues. If both are killed, flightd's points are used up to the open, and the
// caller's points from the send on.
//
// # The control
//
// With Config.WithoutFlightd the caller calls the CRM directly and retries if the outcome is unknown. The same checks
// must then find duplicates, which proves that the drill can fail.
package drill
