// Package protocolmodel is an explicit-state model of the protocol between callers, nodes, etcd and the ledger. It
// visits every state that a small configuration can reach, breadth first, and checks the properties below in each. A
// control is a configuration with one rule broken: the test fails unless the model finds it. Only tests use the model, so
// all of it but this text lies in test files.
//
//	go test ./flight/protocolmodel                     the short table, within a minute
//	go test -v ./flight/protocolmodel                  the same, with every shortest run to a violation
//	go test -tags deep -run TestExhaustive -timeout 60m -v ./flight/protocolmodel
//	                                                   the whole table
//	FLIGHTD_MODEL=V3 go test -v ./flight/protocolmodel    one configuration, by its ID
//	FLIGHTD_MODEL_TIME=10m go test -tags deep …        more time for each configuration of the whole table
//
// Each configuration logs its states, its steps, its time and whether the search was complete. A search that reached a
// limit logs "NOT COMPLETE": it has proved nothing about the states that it did not visit.
//
// # The rules
//
// A session is an etcd lease with a session key; it is created once and ends once. Its owner trusts it until (the last
// answered renewal was sent + TTL - margin). A long-lived session serves many attempts; a node creates a one-shot
// session for one open. A claim is the etcd key of one business key, attached to a lease. An attempt is a row in the ledger:
// number, session, create revision of the session key, nonce.
//
//  1. A worker starts an effect only while its attempt is committed and open, it trusts the session that the attempt
//     names, its claim was granted, and the time-out, counted from the first sending of the open, has not passed.
//  2. The ledger decides, and a claim proves nothing. After proceed a node replaces a foreign claim. A release compares
//     the mod revision. Any node may delete any claim.
//  3. An open attempt ends by (a) its report, (b) an abandon by the caller that made the nonce, (c) the proof that its
//     session has ended, (d) a time-out in ledger time. After (c) and (d) a report of the newest attempt still counts.
//  4. EndSession(session, create revision, read revision, lease epoch) follows a read that did not find the session key; the
//     ledger rejects it unless read revision ≥ create revision and the lease epoch is current. One EndSession ends a bounded
//     number of attempts, and is repeated. The ledger remembers an ended session; a rejected EndSession changes nothing.
//  5. Claim and Open go out at once; the effect starts when both are granted.
//  6. (key, nonce) identifies an open. A repeat gets the same answer while the attempt is open; a used nonce opens nothing
//     again before its not_after. A caller leaves on a final answer, else it repeats the open or sends an abandon. A caller
//     that was answered busy without a proposal may leave, too: its nonce stays given up, and its abandon may follow later.
//  7. The ledger's leader compares sessions with session keys and proposes EndSession; an opener that is answered busy has
//     that one session checked.
//  8. A renewal lists the open attempts of the session. The owner abandons an attempt that it gave up before its start, ignores
//     an attempt that it awaits, holds or has in its spool, and reports unknown, or again, in every other case.
//  9. A one-shot session exists before its Open, and ends after report or abandon was committed, or WithdrawSession answered.
//  10. A fencing token is (store epoch, attempt number). Commands of another store epoch do nothing.
//  11. A restore from a backup raises store epoch and lease epoch, and empties etcd; no two restores give the same store
//     epoch. Nothing opens before the operator's word, which comes after the hold. Until then the operator may import a success
//     that the ledger has lost: it becomes the receipt of a flight without one. A report of the newest attempt under its
//     first token counts like its own. Of every other report of an earlier store epoch, a success becomes the receipt of a
//     flight without one, or raises overlap; an unknown puts a flight without a receipt in doubt, at the latest when its
//     open attempt ends without one; the rest is evidence.
//  12. An answer repeats the random value of its request, and counts for no other one. A proxy may give it to another request:
//     then it counts as lost.
//
// # The properties
//
//   - S1: under policy hold, without a person and without a caller's own "not done", never two effects; under verify the
//     same, where the settle delay is longer than a request lives.
//   - S2: under resend a second attempt opens only after the first was ended by rule 3; no two callers may start at the
//     same time.
//   - S3: tokens rise in the order of opening.
//   - S4: while a caller may start an effect, no other party ends its attempt.
//   - S5: removing any claim at any time harms nothing.
//   - L1: when faults stop, no key stays blocked: from every state fair steps lead to a settled one, and no cycle that
//     weak fairness permits avoids the settled ones.
//   - D1: a live owner never reports an attempt that it did not start as unknown, and never leaves such an attempt open.
//   - D2: nothing opens under a session that was proven to have ended.
//   - A1: no living session is remembered as ended.
//   - C1: a release deletes no claim that another node wrote.
//   - K1: nothing opens after the ledger has heard of a success of an earlier store epoch, nor (K2) while a lost attempt is
//     known to be of unknown outcome. K3: a second success raises overlap. K4: an overlap means two effects. F1: no final
//     refusal where the effect happened. S1 of a restored ledger: never two effects without the operator's word between
//     them.
//   - J1: a claim request has one job open at a time (refuted, see J2).
//
// # The configurations
//
//	letter  files          rules                                           controls
//	A to X  callers_*      1, 2, 3 (a)-(c), 5, 6, 8, 9: callers, nodes,    N1-N13 (1 to 12, 15)
//	                       claims, long-lived, one-shot
//	R       reports_*      3, 6, 8, 10: reports in steps, spools,          RN (13, drift, last sending),
//	                       not_after, time-outs, a restored ledger         RL, RD (11, 12, in_doubt), RF
//	E       ended_*        4, 7: revisions, memory, batches                EN (2, refused, forgotten, once)
//	C       claims         2: create and mod revision                      CN (14)
//	V       verification   look-ups under policy verify                    VN
//	G       epochs         4: guard counter, lease epochs, restored etcd   GN
//	T       restores       10: a restored ledger that lost an Open         TN
//	U       reconciling_*  10, 11: restores from a backup, and reports of  UN
//	                       attempts that the restored ledger has lost
//	J       jobs           8: jobs handed out                              JN
//
// A machine has a state of bytes, its steps, its properties and a table of rows. The machines share the ledger of one flight
// (ledger: Open, report, Abandon, a lost attempt), the life of a long-lived session with its owner's faults (sessionRules),
// and table, which makes the configurations. A machine adds its conditions, its messages and its planted faults.
//
// Some configurations without "control" in their names must fail, too. They show the limits of a rule, or the reason
// for its wording:
//
//   - C2, C3: an effect may run without its claim for a moment.
//   - RF1, RF2, X1: an Open that is rejected because its not_after is too far ahead must leave its nonce used, or must not
//     have been proposed; else a late copy opens when no caller waits for it.
//   - X3, X5: a copy of an open may open an attempt after its caller was answered busy. Renewals show it only while the
//     session lives: a caller without a session, or whose session has ended, has to send its abandon.
//   - RD8: a restored ledger makes an owner that dropped its rows report an unstarted attempt as unknown.
//   - V3: where a newer verification may be given at any time, two openers replace each other forever.
//   - G6, G7, G8, G9: the requirements of a restored etcd on renewals, of the order of raising the lease epoch, of trust that has
//     ended, and of new sessions. GN5: a backup younger than the last recorded counter is not detected.
//   - T4, T5, T6: the requirements of a restored ledger. The claim alone does not separate the callers of two store epochs.
//   - U7: a refusal of the restored ledger's newest attempt is final, even if a later attempt of the lost ledger has acted.
//     The report of that attempt then raises overlap.
//   - J2: nodes with lagging views hand two jobs to one claim request; the worker abandons the other.
//
// # Not modelled
//
// Time as numbers (a deadline is an event, and the rules promise only the order of events); more than three callers;
// raft itself, whose log is one sequence here; clocks that drift, except control RN3; frozen machines that send an effect
// after their trust has ended (the provider's token or key is for those); Rebind; suspended attempts and callbacks, and sagas, which
// package flight explores (TestCallbacks_Explored, TestSagas_Explored);
// closing a session manually; redactions, retention and generations; claims together with reports in steps; several raft
// groups; two competing workers of jobs; look-ups and one-shot sessions across a restore;
// a ledger and an etcd restored together.
package protocolmodel
