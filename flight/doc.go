// Package flight has the vocabulary of flightd that every other package uses, and the rules as one pure function. It does
// no input or output, starts no goroutine, reads no clock and draws no random number. The replicated ledger is this
// package's [Apply], once for each command of its log. Read apply.go next; docs/protocol.md says how callers, nodes, etcd and
// the ledger work together.
//
// # Words
//
// A [Key] names one business intent: namespace/name/id. Its [Flight] is the durable record: input, policy, state,
// attempts and, in the end, the [Receipt], which is the stored first outcome. A caller that presents the same key again
// gets that receipt and no second effect. A [Fingerprint] of the canonical input tells the same intent from a caller's
// mistake. A key lives in generations: a person may end one and let the effect run again, and what was known of the old one
// is kept.
//
// An [Attempt] is one try at the effect. While it is open, its holder, a [Session], is the only one that may act on the
// key. A session is a lease in etcd with a marker key, and it ends once. The key and a [Nonce] that the caller made identify
// an [Open]: its repeats, through any node and under any session, get the same answer while the attempt is open. The fencing
// [Token] of an attempt travels outward with the effect. The ledger gives its number, which rises by one with every attempt
// of the key and never restarts. What etcd knows of a key, a claim, is no concern of this package: it keeps other callers
// from asking, and proves nothing.
//
// # What an outcome means
//
// An error does not say that nothing happened. Every attempt ends in one of four ways:
//
//	succeeded   the effect happened                         the receipt is stored, the flight is over
//	refused     it did not and never will                   stored as a failed receipt, the flight is over
//	not_done    it surely did not happen this time          tried again by the retry policy
//	unknown     it may have happened                        the recovery policy decides
//
// Doubt sticks. A flight with an attempt of unknown outcome is tainted, and only knowledge clears that: a later report of
// the attempt itself, its caller's word that nothing was sent, a success, a look-up, a person, or, under resend inside the
// provider's window, an answer under our key from a provider that honours it. A tainted flight never ends as failed or
// cancelled by itself. The recovery is resend (send again under the same idempotency key), verify (ask the provider, after
// the settle delay) or hold (wait for a person), and hold is the zero value: never a second effect by accident.
//
// # How an open attempt ends
//
//	a Report with its token                    by its outcome
//	an Abandon with its nonce                  not done: its caller sent nothing, and never will
//	an Ended of its session                    unknown. The proof is a read of etcd that did not find the marker, made after
//	                                           the marker was written, in the same history of etcd
//	its time-out, or its callback's deadline   unknown, in ledger time; see Attempt.Deadline
//	the hold of an older lease epoch is over   unknown: etcd has lost the session
//
// Nothing else ends it: no other Open, no missing claim, no node that gives up. After the last three its own report still
// counts while no newer attempt has opened, and an Abandon takes the doubt back. A saga's attempt also ends by Suspend. An
// attempt that waits for its callback has no holder, and only its report or the deadline ends it.
//
// # Invariants
//
// Apply keeps these for every view it returns, if the view before kept them. Package flighttest judges each step by
// them; tests walk through all short sequences of commands and many long ones. Where a part of the promise is kept
// elsewhere, the line says where.
//
//  1. I1: a flight has at most one open attempt, and it is the newest. It ends in the ways above and in no other.
//  2. I2: an attempt opens only with a token greater than every token that the key has seen, in any generation. An Open
//     that opens nothing moves no fence.
//  3. I3: a report is accepted from the newest attempt alone, until the flight is over; also after the attempt was concluded
//     to be lost, for a look-up is no attempt. Every other report is fenced and kept as [Evidence], also one of an attempt
//     that a restored ledger has lost. A fenced success that names another effect than the receipt, or belongs to a failed
//     or cancelled flight, raises Overlap; a tombstone keeps such evidence alone.
//  4. I4: a receipt never changes; a person may have the bytes of its body erased, and its digest stays. A flight that ended
//     with a receipt stays until its retention is over, and then leaves a tombstone that still guards the key. Expiry is a
//     command naming the key; no clock expires anything.
//  5. I5: only [Proceed] means act, and Apply says it to the caller of the open attempt alone. That the effect starts only
//     after the commit, and only while the holder trusts its session, is kept by executor and client.
//  6. I6: all callers of one key and fingerprint get the same receipt or the flight's true state; another fingerprint is
//     a conflict, at any time.
//  7. I7: no acknowledged receipt is lost with a minority of nodes. Kept by clusterstore; here a receipt cannot be
//     taken back.
//  8. I8: a late report that is still the newest attempt's is accepted, though its session has ended: the ledger decides.
//  9. I9: a saga turns from forward to undoing once. Forward steps open only before, undos only after. A step that names a
//     driver opens only while that driver's attempt is open; one that names none must have been submitted by a driver. A
//     sealed step never opens. That landed effects are undone in reverse is kept by saga.
//  10. I10: any command may be repeated. It names its key, its generation and a token, probe, version or nonce; a repeat
//     answers as the first time while that is still true, else what is true now, and never changes anything more. (A
//     fenced report for which there was no room any more is counted again.)
//
// A nonce opens one attempt at most. It is used up by the attempt, by an Abandon, by an answer of [Doubtful] or [Look], and
// by [OpenExpired] where its NotAfter was too far ahead. A flight remembers it until its NotAfter has passed, when every copy
// of its Open is refused anyway; no more than MaxUsedNonces, beyond which it answers [Exhausted]. Adding one changes nothing
// that a person sees, so the flight keeps its version. Nothing opens under a session that is remembered as ended, or of an
// older lease epoch. One caller at a time is sent to ask the provider.
//
// # Restores
//
// Open, Abandon, Ended and Withdraw name the store epoch of the ledger that their proposer knew, and do nothing in another
// one. An attempt that a restored ledger still holds open reports under a token of the new store epoch ([Header.TokenOf]),
// which the repeat of its Open and the renewal of its session tell. A report with an older token may be of an attempt that
// had another end in the ledger that was lost: it is evidence.
//
// # Where a process may die
//
// This package holds nothing that can be lost. But its commands are the points between which a holder dies, and this is
// what is true then:
//
//	before its Open is committed             nothing happened. An Open still on its way opens nothing after its NotAfter, or
//	                                         after its session was proven to have ended, or if it was abandoned
//	after Open, before the effect            an open attempt. The session ends in etcd, somebody proposes Ended, and the
//	                                         attempt is lost: tainted, though nothing happened. The recovery policy decides
//	after the effect, before the Report      the same record, and the effect did happen: that the two look alike is why
//	                                         there is a recovery policy
//	after a Report that was not answered     the receipt is stored. The repeat of the report is accepted and changes nothing
//	after the attempt was taken for lost     the holder may wake up and report: accepted while no newer attempt has opened
//	                                         and nobody settled the flight; else kept as evidence
//	while it asks the provider               the look-up stays due. Another caller is sent when the session has ended, or the
//	                                         time for a look-up is over, under a number of its own; a verdict for an earlier
//	                                         number is fenced
//	between an unknown outcome and a person  in doubt until then, however long
//	between two Ended of one session         the flights that are left keep their open attempts. Nothing opens under the
//	                                         session; the next opener, or the sweeper, proposes Ended again
package flight
