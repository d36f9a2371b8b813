// Package flight is the ground floor of flightd: the words that every other package speaks, and the rules as one pure
// function. It does no input or output, starts no goroutine, reads no clock and draws no chance. The replicated ledger
// is this package's Apply, once for each entry of its log. Read apply.go next.
//
// # Words
//
// A [Key] names one business intent: namespace/name/id. Its [Flight] is the durable record: input, policy, state,
// attempts and, in the end, the [Receipt], which is the stored first outcome. Whoever presents the same key again gets
// that receipt and no second effect. A [Fingerprint] of the canonical input tells the same intent from a caller's
// mistake. An [Attempt] is one try at the effect under one [Claim], which a lease grants; its fencing [Token] rises with
// every attempt of the key and travels outward with the effect. A key lives in generations: a person may end one and
// let the effect run again, and what was known of the old one stays.
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
// Doubt sticks. A flight with an attempt of unknown outcome is tainted, and only somebody who knows clears that: the
// attempt itself by a later word, a success, a look-up, a person, or, under resend inside the provider's window, an
// answer under our key from a provider that honours it. A tainted flight never ends as failed or cancelled by itself.
// The recovery is resend (send again under the same idempotency key), verify (ask the provider, after the settle
// delay) or hold (wait for a person), and hold is the zero value: never a second effect by accident.
//
// # Invariants
//
// Apply keeps these for every view it returns, if the view before kept them. Package flighttest judges each step by
// them; tests walk through all short sequences of commands and many long ones. Where a part of the promise is kept
// elsewhere, the line says where.
//
//  1. I1: a flight has at most one open attempt, and it is the newest. It gives way only by its own word, or to a claim
//     newer than its own (an older claim's key was gone before a newer one could be made), or after a callback's time.
//  2. I2: an attempt opens only with a token greater than every token that the key has seen, in any generation. What
//     opens nothing moves no fence.
//  3. I3: a report is accepted from the newest attempt alone, until the flight is over; whatever was concluded in
//     between, for a look-up is no attempt. Every other report is fenced and kept as [Evidence]; a fenced success that
//     names another effect than the receipt, or stands against a failed or cancelled flight, raises Overlap.
//  4. I4: a receipt never changes; a person may have the bytes of its body erased, and its digest stays. What ended with one stays until its retention is over, and then leaves a tombstone
//     that still guards the key. Expiry is a command naming the key; no clock expires anything.
//  5. I5: only [Proceed] means act, and Apply says it to the holder of the open attempt alone. That the effect starts
//     only after the commit, and only while the holder trusts its lease, is kept by executor and client.
//  6. I6: all callers of one key and fingerprint get the same receipt or the flight's true state; another fingerprint is
//     a conflict, at any time.
//  7. I7: no acknowledged receipt is lost with a minority of nodes. Kept by clusterstore; here a receipt cannot be
//     taken back.
//  8. I8: a late report that is still the newest attempt's is accepted, though its lease is gone: the ledger decides.
//  9. I9: a saga turns from forward to undoing once. Forward steps open only before, undos only after, each started only
//     by the saga's newest driver, and a sealed step never. That landed effects are undone in reverse is kept by saga.
//  10. I10: any command may be repeated. It names its key, its generation and a token, probe, version or nonce; a repeat
//     answers as the first time while that is still true, else what is true now, and never changes anything more. (A
//     fenced report for which there was no room any more is counted again. An Open that says that it is a repeat marks its
//     attempt as told, once; from then on only its caller abandons it.)
//
// # Where a process may die
//
// This package holds nothing that can be lost. But its commands are the points between which a holder dies, and this is
// what is true then:
//
//	dead before its Open is committed        nothing happened. An Open still in the air opens nothing after its NotAfter,
//	                                         or at once if it was abandoned by nonce
//	after Open, before the effect            an open attempt. Its holder's claim ends with its session; the next claim
//	                                         (a caller's Open, or the sweeper's Recover) concludes that the attempt is
//	                                         lost: tainted, though nothing happened. The recovery policy decides
//	after the effect, before the Report      the same record, and the effect did happen: that the two look alike is why
//	                                         there is a recovery policy
//	after a Report that was not heard        the receipt stands. The repeat of the report is accepted and changes nothing
//	after it was concluded to be lost        the holder may wake up and report: accepted while no newer attempt has opened
//	                                         and nobody settled the flight; else kept as evidence
//	while looking                            the probe stays. The next claim is sent to look under a number of its own; a
//	                                         verdict for an earlier number is fenced
//	between an unknown outcome and a person  in doubt until then, however long
package flight
