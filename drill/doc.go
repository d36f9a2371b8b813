// Package drill kills real processes at every point of no return of a flight, and counts what happened.
//
// Three processes take part: a small CRM that keeps books on what really happened (crm.go), flightd itself, and a
// caller that acts through the Go client (caller.go). All three are this program, executed again. A run (plan.go) is
// one intent, one recovery policy and one mishap: the caller, flightd or both die by SIGKILL at a named point, or the
// CRM misbehaves. Then flightd is started again on the same data if it was killed, a new caller comes back with the
// same key as a retry would, a person settles what is held, and the facts are gathered (perform.go). Whether they keep
// what was promised is decided by a pure function (promise.go).
//
// # Where the points are
//
//	point          the caller dies, or stops for the drill       flightd dies
//	before-open    before it asks for the flight                 before it asks etcd for the claim and the ledger for the attempt
//	during-open    when its :open has left and is not answered   when the claim is on its way, before the ledger is asked
//	after-open     when it was told to act                       after the ledger has the attempt, before it says so
//	before-send    with the request built, before it is dialled  when the caller stands there
//	after-effect   when the CRM's answer comes, unread           when the caller stands there
//	before-report  with the answer in its hands                  with the report in its hands
//	after-report   when the report was answered                  after the ledger has the report, before it says so
//	before-release with the receipt, and its session alive       before it gives the claim back
//
// Flightd dies by itself at the points that it passes; where only the caller does, the caller stops, the drill kills
// flightd, and the caller goes on. When both are to die, flightd's own points are used until the open, and the caller's
// from the send on.
//
// # The control
//
// With Config.WithoutFlightd the caller calls the CRM by itself and tries again when it is not sure. The same checks
// then find duplicates, which shows that the drill can fail.
package drill
