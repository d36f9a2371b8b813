// Package remote serves remote callers: they perform effects themselves, open, act and report through any node, and
// repeat requests that were not answered.
//
// A node stores nothing about remote callers that a restart could lose. The ledger has the open attempts and their
// sessions; etcd has the sessions that live. A call reads both, passes them to the pure function decide, performs the
// action that decide returns, and reads again.
//
// # Files
//
//	decide.go       the next action of a call, and its cleanup
//	open.go         the loop of an open: read, decide, act
//	answer.go       answers and errors
//	report.go       report and abandon
//	callback.go     attempts that wait for their callback
//	verification.go the finding of a look-up, and the open that follows from it
//	session.go      sessions: created, renewed, closed
//	service.go      configuration, start and stop, background work
//	keyedmutex.go   the openers of one key at this node propose one after another
//
// # The actions of an open
//
// The first row that matches is taken. "Own" means: opened under the nonce of this call, by any delivery of the
// request. H14 and its like are the rows of docs/hazards.md.
//
//	    the view has                                    action                 reason
//	 1  a flight that has ended, or another input       replay, expired,       final for every caller; needs no session
//	                                                    conflict
//	 2  a restored ledger that nobody has finished      reconciling            a key without a receipt may have one in the ledger
//	                                                                           that was lost
//	    an own attempt is open, and
//	 3    its session was not renewed for this answer   renew that session     this view may be stale: only etcd knows
//	                                                                           whether the session lives (H29)
//	 4    its session, or its session key, is gone      lease_lost; check it   the caller must not start; its attempt is to end
//	 5    etcd does not answer                          lease_unavailable      nothing is abandoned: another node may answer a
//	                                                                           copy of this open (H14)
//	 6    another holder has the claim                  replace the claim      the ledger has decided; to wait for the other
//	                                                                           claim would block the key
//	 7    its claim is not answered                     wait for it, or claim  a second, independent confirmation
//	 8    none of rows 3 to 7                           proceed, with the      the only answer that means: act (H10)
//	                                                    attempt's session
//	    an own verification is open, and
//	 9    its session has ended, or it was abandoned    lease_lost             another caller may verify; take a new nonce
//	10    its session was not renewed                   renew that session     as row 3
//	11    its session is gone                           lease_lost; check it   as row 4
//	12    etcd does not answer                          lease_unavailable      as row 5
//	13    this node's clock still counts the settle     wait                   a wall clock may have been set ahead (H25)
//	      delay
//	14    none of rows 9 to 13                          verify                 a look-up changes nothing: no claim
//	    the ledger's reply to the Open was
//	15    open_expired                                  open_expired           never concluded from a view: a copy of the Open
//	                                                                           may have opened an attempt
//	16    session_ended                                 lease_lost             nothing opens under this session
//	17    exhausted                                     too_many_open          the abandoned nonces expire within a minute
//	    the view has
//	18  state in_doubt, and the nonce is marked used    in_doubt, proposed     final: no copy of the Open opens anything
//	19  a used nonce; or the ledger fenced a step       fenced                 the nonce opens nothing again. The caller of a
//	                                                                           lost attempt removes its doubt by an abandon
//	20  state in_doubt, and nothing was proposed        in_doubt               final for the only request with this nonce
//	21  no approval                                     awaiting_approval
//	22  a reply of the ledger just now: busy, or other  wait; check            until the flight changes, or for as long as the
//	    epochs than this node knows                                            ledger has said
//	23  an attempt or verification of another caller,   wait; check            needs no session. An overdue attempt does not
//	    or it is too early                                                     block: the Open ends it (H16, H19)
//	24  a node that stops                               draining               nothing new starts
//	25  too many opens without a report, or a limit of  too_many_open, or      a caller that never reports would fill the ledger
//	    the namespace is reached                        quota_exceeded
//	26  anything else; also in_doubt, proposed before   open and claim         both at once: the claim costs no extra wait
//
// "Wait" becomes busy if the caller does not wait, or no longer, and draining if the node stops. Busy says whether this
// call has proposed its Open: if it has, a copy may still open an attempt, and the caller must repeat or abandon the
// open. "Check" starts a read of etcd for the session that blocks; if the read proves that the session has ended, its
// attempts end. No row ends an attempt or a session by itself.
//
// # The cleanup after an open
//
//	the call has ended, and                            in the background      reason
//	the reply was not its own attempt                  release the claim      only the holder needs a claim
//	the caller has no nonce, was not answered, and     abandon                nobody can repeat the open. For a caller with a
//	an attempt may be open                                                    nonce no node ever abandons (H8)
//	a session was created for this open alone, and     withdraw the session,  a copy of the Open may still arrive: busy is no
//	holds nothing                                      end it when accepted   proof
//	a session was created for this open alone, and     nothing                the session ends with the report or the abandon
//	holds the attempt or the verification
//
// # What is true if the process dies on this line
//
// Config.Crash is called at these lines. The caller lives, keeps its session, and repeats unanswered requests at any
// node that answers: testdata/node-*.
//
//	the node dies    claim    attempt  consequence
//	before-open      no       no       the repeat of the open starts from nothing
//	during-open      perhaps  no       the same: a claim without an attempt does not block the key
//	after-open       perhaps  open     the repeat gets the same attempt and token, found by its nonce, with or without a session
//	                                   of the caller's. The claim is created if it is missing
//	before-report    yes      open     the repeat of the report is accepted
//	after-report     yes      closed   the repeat is accepted again and changes nothing
//	before-release   yes      closed   the same; the repeat releases the claim and ends a one-shot session
//	before-suspend   yes      open     the repeat of the suspend hands the attempt over
//	after-suspend    yes      waiting  the repeat is accepted again, and releases the claim. Without a repeat the claim stays until
//	                                   the search for orphans or the end of the session; it blocks nobody
//
// A callback passes before-report, after-report and before-release as a report does, and its provider calls again:
// testdata/callback-*.
//
// The caller dies, alone or together with the node: testdata/caller-* and testdata/both-*. Its session is not renewed
// any more, so the sweeper has the proof a TTL later.
//
//	the caller dies  effect   consequence
//	before-send      no       a doubt, by its recovery: hold: in doubt at once. resend: free for the next opener, who gets
//	                          attempt 2 and the same idempotency key. verify: the next opener must look up
//	during-effect    yes      the same
//	before-report    yes      the same
//	after-report     yes      the receipt is replayed
package remote
