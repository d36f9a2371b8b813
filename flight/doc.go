// Package flight has the vocabulary of flightd that every other package uses, and the rules as one pure function. It does
// no input or output, starts no goroutine, reads no clock and draws no random number. The replicated ledger applies
// [Apply] once to each command of its log. Read apply.go next; docs/protocol.md describes how callers, nodes, etcd and the
// ledger work together.
//
// # Words
//
// A [Key] names one business intent: namespace/name/id. Its [Flight] is the durable record: input, policy, state,
// attempts and, in the end, the [Receipt], which is the stored first outcome. A caller that presents the same key again
// gets that receipt and no second effect. A [Fingerprint] of the canonical input distinguishes a repeat of the intent from
// a second intent under the same key by mistake. A key lives in generations: a person may end one generation and let the
// effect run again; the receipt of the earlier generation is kept.
//
// An [Attempt] is one try at the effect. While it is open, its holder, a [Session], is the only one that may act on the
// key. A session is a lease in etcd with a session key, and it ends once. The key and a [Nonce] that the caller made identify
// an [Open]: its repeats, through any node and under any session, get the same answer while the attempt is open. The fencing
// [Token] of an attempt travels outward with the effect. The ledger gives its number, which rises by one with every attempt
// of the key and never restarts. A claim, which is etcd's record of a key, is outside this package: it keeps other callers
// from proposing an Open, and proves nothing.
//
// # Outcomes
//
// An error does not prove that nothing happened. Every attempt ends in one of four ways:
//
//	succeeded   the effect happened                         the receipt is stored, the flight is over
//	refused     it did not happen and never will            stored as a failed receipt, the flight is over
//	not_done    it surely did not happen this time          tried again by the retry policy
//	unknown     it may have happened                        the recovery policy decides
//
// Taint is sticky. A flight with an attempt of unknown outcome is tainted, and only knowledge removes the taint: a later
// report of the attempt itself, its caller's statement that nothing was sent, a success, a look-up, a person, or, under
// resend inside the provider's window, an answer under our key from a provider that honours it. A tainted flight never ends
// as failed or cancelled by itself. The recovery is resend (send again under the same idempotency key), verify (ask the
// provider, after the settle delay) or hold (wait for a person). Hold is the zero value, so that a forgotten setting never
// causes a second effect.
//
// # How an open attempt ends
//
//	a Report with its token                    by its outcome
//	an Abandon with its nonce                  not_done: its caller sent nothing, and never will
//	an EndSession of its session               unknown. The proof is a read of etcd that did not find the session key, made
//	                                           after that key was written, in the same history of etcd
//	its time-out, or its callback's deadline   unknown, in ledger time; see Attempt.Deadline
//	the hold of an older lease epoch expired   unknown: etcd has lost the session
//
// Nothing else ends it: no other Open, no missing claim, no node that gives up. After the last three, the attempt's own
// report is still accepted while no newer attempt has opened, and an Abandon removes the taint. A saga's attempt has no
// session: it ends by Suspend, by its Report, and by the Open of the next driver. An attempt that waits for its callback has
// no holder, and only its report or the deadline ends it.
//
// # Invariants
//
// Apply keeps these for every view it returns, if the view before kept them. Package flighttest checks each step against
// them; tests walk through all short sequences of commands and many long ones. Where another package keeps a part of the
// promise, the line names that package.
//
//  1. I1: a flight has at most one open attempt, and it is the newest. It ends in the ways above and in no other.
//  2. I2: an attempt opens only with a token greater than every token that the key has seen, in any generation. An Open
//     that opens nothing moves no fence.
//  3. I3: a report is accepted from the newest attempt alone, until the flight is over; also after the attempt was marked
//     lost, because a look-up is not an attempt. Every other report is fenced and kept as [Evidence]; reports of attempts
//     that a restored ledger has lost are described below. A fenced success that names another effect than the receipt, or
//     belongs to a failed or cancelled flight, raises Overlap; a tombstone keeps such evidence alone.
//  4. I4: a receipt never changes; a person may have the bytes of its body erased, and its digest stays. A flight that ended
//     with a receipt is kept until its retention expires, and then leaves a tombstone that still guards the key. Expiry is a
//     command naming the key; no clock expires anything.
//  5. I5: only [DecisionProceed] permits the effect, and Apply returns it to the caller of the open attempt alone. Packages
//     executor and client ensure that the effect starts only after the commit, and only while the holder trusts its session.
//  6. I6: all callers of one key and fingerprint get the same receipt or the flight's true state; another fingerprint is
//     a conflict, at any time.
//  7. I7: no acknowledged receipt is lost with a minority of nodes. Kept by clusterstore; in this package, no command
//     removes a receipt.
//  8. I8: a late report that is still the newest attempt's is accepted, though its session has ended: the ledger decides.
//  9. I9: a saga changes its phase once: from forward to undoing, or to committed, which nothing undoes. Steps and undos are
//     created by the driver alone whose attempt is open. A forward step is created, and opened, in forward until the saga is
//     cancelled, and in committed; after a cancel only to find out what has happened. An undo is, in undoing. A step that may
//     not start any more, and has not happened, ends. An undo, and a step in committed, waits for a person instead of failing.
//  10. I10: any command may be repeated. It names its key, its generation and a token, verification, version or nonce; a
//     repeat is answered as the first time while that answer is still true, else with the present state, and never changes
//     anything more. (A repeated fenced report is counted again when there is no space to store it.)
//
// A nonce opens one attempt at most. It is used up by the attempt, by an Abandon, by an answer of [DecisionInDoubt] or
// [DecisionVerify], and by [DecisionOpenExpired] where its NotAfter was too far ahead. A flight remembers it until its
// NotAfter has passed; after that every copy of its Open is rejected anyway. A flight remembers at most MaxUsedNonces, and
// answers [DecisionExhausted] beyond that. Adding a used nonce changes nothing visible, so the flight keeps its version.
// Nothing opens under a session that is remembered as ended, or of an older lease epoch. At most one caller at a time is
// assigned to ask the provider.
//
// # Restores
//
// Open, Abandon, EndSession and WithdrawSession name the store epoch of the ledger that their proposer knew, and do nothing
// in another epoch. An attempt that a restored ledger still holds open reports under its first token, or under a token of
// the new store epoch ([Header.TokenOf]). [Restore] makes the ledger reconciling: every Open that is not answered by a final
// flight is answered [DecisionReconciling], and uses no nonce up, until [FinishRestore].
//
// A restored ledger may have lost flights, attempts and receipts. A report is taken for one of a lost attempt if it is of
// another store epoch and not the newest attempt's, or if its number is above every number that the key has seen. For a
// flight without a receipt, before and after FinishRestore:
//
//	succeeded   the receipt of the flight, with [SourceReportAfterRestore]. An open attempt is marked lost; if it acts, its
//	            report is evidence and raises Overlap. A flight that ended as failed or cancelled succeeds
//	unknown     the flight is tainted: in doubt, or a look-up is due, as soon as no attempt is open. A flight that is known by
//	            this report alone has no input; resolved as not happened, it is absent again
//	the rest    evidence: they say nothing about other attempts that were lost
//
// The same is true of a generation that the flight has not reached, if the flight is absent; else it is evidence. While the
// ledger is reconciling, an [Import] of a success gives a flight without a receipt that receipt.
//
// # Where a process may die
//
// This package holds no state that could be lost. Its commands are the points between which a holder dies. The state after
// a crash at each point:
//
//	before its Open is committed             nothing happened. A delayed Open opens nothing after its NotAfter, or after its
//	                                         session was proven to have ended, or if it was abandoned
//	after Open, before the effect            an open attempt. The session ends in etcd, a node proposes EndSession, and the
//	                                         attempt is lost: tainted, though nothing happened. The recovery policy decides
//	after the effect, before the Report      the same record, but the effect did happen. The ledger cannot distinguish these
//	                                         two cases, and therefore has a recovery policy
//	after a Report that was not answered     the receipt is stored. The repeat of the report is accepted and changes nothing
//	after the attempt was marked lost        the holder may resume and report: accepted while no newer attempt has opened and
//	                                         no person resolved the flight; else stored as evidence
//	while it asks the provider               the look-up stays due. Another caller is assigned after the session has ended,
//	                                         or the time for a look-up is over, under a new number; a finding for an earlier
//	                                         number is fenced
//	between an unknown outcome and a person  in doubt until then, without a limit
//	between two EndSession of one session    the remaining flights keep their open attempts. Nothing opens under the
//	                                         session; the next opener, or the sweeper, proposes EndSession again
package flight
