// Package remote serves callers that perform effects themselves: they open, act and report, through any node, and repeat
// what was not answered.
//
// A node keeps nothing about such callers that a restart could lose. What is open, and under which session, is in the
// ledger; which sessions live is in etcd. A call looks at both, asks the pure function decide what comes next, does it, and
// looks again.
//
// # Files
//
//	decide.go     what a call does next, and what it leaves behind
//	open.go       an open being served: look, decide, act
//	answer.go     answers and errors
//	report.go     report and abandon
//	verdict.go    the result of a look-up, and the open that follows from it
//	session.go    sessions: made, renewed, closed
//	service.go    configuration, start and stop, work in the background
//	keyqueue.go   the openers of one key at this node propose one after another
//
// # What an open does next
//
// The first row that fits is taken. "Own" means: opened under the nonce of this call, by whichever sending of it. H14 is the
// hazard that tests named TestHazard14 cause.
//
//	    the view shows                                  action                 why
//	 1  the flight has ended, or its input is another   replay, expired,       final, whoever asks; needs no session
//	                                                    conflict
//	    an own attempt is open, and
//	 2    its session was not renewed for this answer   renew that session     this view may be stale: only etcd knows
//	                                                                           whether the session lives (H29)
//	 3    its session, or its marker, is gone           lease_lost; check it   the caller must not start; its attempt is to end
//	 4    etcd does not answer                          lease_unavailable      nothing is abandoned: a copy of this open may
//	                                                                           be answered elsewhere (H14)
//	 5    the claim is somebody else's                  replace the claim      the ledger has decided; a claim that is
//	                                                                           waited for blocks the key
//	 6    its claim is not answered                     wait for it, or claim  a second, independent yes
//	 7    all of this is true                           proceed, with the      the only answer that means: act (H10)
//	                                                    attempt's session
//	    the own caller was sent to look, and
//	 8    its session has ended, or it gave up          lease_lost             somebody else may be sent; take a new nonce
//	 9    its session was not renewed                   renew that session     as row 2
//	10    its session is gone                           lease_lost; check it   as row 3
//	11    etcd does not answer                          lease_unavailable      as row 4
//	12    the settle delay runs by this node's clock    wait                   a wall clock may have been set ahead (H25)
//	13    all of this is true                           verify                 a look-up changes nothing: no claim
//	    the ledger's reply to the Open was
//	14    open_expired                                  open_expired           never said from a view: a copy of the Open
//	                                                                           may have opened an attempt
//	15    session_ended                                 lease_lost             nothing opens under this session
//	16    exhausted                                     too_many_open          the nonces given up expire within a minute
//	    the view shows
//	17  in doubt, and the nonce was marked for that     in_doubt, proposed     final: no copy of the Open opens anything
//	18  the nonce is used; or the ledger fenced a step  fenced                 it opens nothing again. The caller of a lost
//	                                                                           attempt takes its doubt back by an abandon
//	19  in doubt, and nothing was proposed              in_doubt               final for the only request with this nonce
//	20  an approval is missing                          awaiting_approval
//	21  the ledger has just replied busy, or that it    wait; check            until the flight changes, or for as long as the
//	    knows other epochs than this node                                      ledger has said
//	22  somebody else's attempt or look-up, or too      wait; check            needs no session. What is overdue blocks
//	    early                                                                  nobody: the Open ends it (H16, H19)
//	23  this node stops                                 draining               nothing is begun
//	24  a bound on opens without a report is reached    too_many_open          a caller that reports nothing fills the ledger
//	25  anything else; also in doubt, proposed before   open and claim         at once: the claim costs no wait of its own
//
// "Wait" becomes busy where the caller does not wait, or not any longer, and draining where the node stops. Busy says
// whether this call has proposed its Open: where it has, a copy may still open an attempt, and the caller must repeat or abandon it.
// "Check" has a read of etcd made of the session that is in the way; where that proves the end of the session, its
// attempts end. No row ends an attempt or a session by itself.
//
// # What an open leaves behind
//
//	the call ended, and                               in the background      why
//	its reply was another than its own attempt         release the claim      only the holder needs one
//	its caller has no nonce, was not answered, and     abandon                nobody can repeat the open. For a caller with a
//	an attempt may be open                                                    nonce no node ever does (H8)
//	a session was taken for this open alone, and       withdraw it, and end   a copy of the Open may be on its way: busy is
//	holds nothing                                      it when accepted       no proof
//	a session was taken for this open alone, and       nothing                it ends with the report or the abandon
//	holds the attempt or the look-up
//
// # What is true if the process dies on this line
//
// The lines are those at which Config.Crash is called. The caller lives, keeps its session and repeats what was not
// answered, to whatever node answers: testdata/node-*.
//
//	the node dies    claim    attempt  what follows
//	before-open      no       no       the repeat of the open starts from nothing
//	during-open      perhaps  no       the same: a claim without an attempt keeps nobody from the key
//	after-open       perhaps  open     the repeat gets the same attempt and token: the nonce finds it, with a session of the
//	                                   caller's or without. The claim is made where it is missing
//	before-report    yes      open     the repeat of the report is accepted
//	after-report     yes      closed   the repeat is accepted once more and changes nothing
//	before-release   yes      closed   the same; the repeat releases the claim and ends a one-shot session
//
// The caller dies, alone or together with the node: testdata/caller-* and testdata/both-*. Nobody renews its session, so
// that the sweeper has the proof a TTL later.
//
//	the caller dies  effect   what follows
//	before-send      no       a doubt, by its recovery: hold: in doubt at once. resend: free for the next opener, who gets
//	                          attempt 2 and the same idempotency key. verify: the next opener is sent to look
//	during-effect    yes      the same
//	before-report    yes      the same
//	after-report     yes      the receipt is replayed
package remote
