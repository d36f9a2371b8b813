package remote

import (
	"errors"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/lease"
)

// view is the input of decide: one open of a caller, the flight of its key, and the facts that this call has collected.
type view struct {
	submission *flight.Submission
	nonce      flight.Nonce
	isStep     bool // the key is a saga's step

	flight      *flight.Flight // this node's view, or the ledger's last reply; nil: the key was never used
	header      flight.Header
	now         flight.Time   // this node's estimate of the ledger time
	lookUpDelay time.Duration // the rest of the settle delay, by this node's own clock

	proposed bool            // this call has proposed its Open
	reply    flight.Decision // of the ledger to the Open, until a newer read; DecisionNone: no reply
	busyFor  time.Duration   // with reply DecisionBusy: when to propose again; 0: not known
	session  etcdState       // of the session of this nonce's open attempt or verification
	claim    etcdState       // of that attempt's claim

	tooManyOpen bool // MaxOpenPerSession or MaxOpen is reached
	callerWaits bool // the caller's wait has not ended
	nodeStops   bool // this node stops
}

// etcdState is the answer of etcd about a session or a claim.
type etcdState uint8

const (
	etcdUnknown     etcdState = iota // no request, or no answer yet
	etcdConfirmed                    // the session was renewed or created for this answer; the claim's transaction succeeded
	etcdForeign                      // of a claim: the key has another holder's claim, which the ledger has overruled
	etcdLost                         // the session has ended
	etcdUnavailable                  // etcd did not answer
)

func etcdStateOf(err error) etcdState {
	switch {
	case err == nil:
		return etcdConfirmed
	case errors.Is(err, lease.ErrHeld):
		return etcdForeign
	case errors.Is(err, lease.ErrLost):
		return etcdLost
	}
	return etcdUnavailable
}

// action is the next step of a call.
type action uint8

const (
	actionAnswerFlight     action = iota + 1 // with the flight's state: replay, expired, conflict, in doubt, awaiting approval
	actionProceed                            // the caller may act
	actionVerify                             // the caller must look up the outcome
	actionBusy                               // another holder's attempt, or too early
	actionFenced                             // the nonce is used
	actionOpenExpired                        // the ledger has replied so
	actionTooManyOpen                        // abandoned nonces of the key, or opens without a report
	actionLeaseLost                          // the caller's session has ended
	actionLeaseUnavailable                   // etcd does not answer: nothing is abandoned, and the caller retries
	actionDraining                           // this node stops; another node serves the caller
	actionReconciling                        // the ledger was restored, and nothing opens before an operator has finished that
	actionWait                               // until the flight changes, or the pause is over
	actionOpen                               // propose the Open and claim the key, both at once
	actionRenewSession                       // of the attempt or the verification
	actionFinishClaim                        // wait for the answer of the attempt's claim; claim now if this call has not claimed
	actionReplaceClaim                       // overwrite another holder's claim
)

// nextStep is the result of decide.
type nextStep struct {
	row    int // of the table in the package comment
	action action
	pause  time.Duration // with actionWait: the longest wait; 0: not known
	// check is the session to pass to the Checker: the session that blocks the open, or that the caller has lost; nil:
	// none.
	check *flight.Session
}

// decide returns the next step of a call. It is a pure function. Its cases are the rows of the table in the package
// comment, in the same order.
func decide(v *view) nextStep {
	f := v.flight
	switch {
	case answer.HasOtherInput(f, v.submission), f != nil && f.State.Terminal():
		return nextStep{row: 1, action: actionAnswerFlight}
	case v.header.Reconciling, v.reply == flight.DecisionReconciling:
		return nextStep{row: 2, action: actionReconciling}
	case v.ownAttempt() != nil:
		return v.decideOwnAttempt()
	case v.ownVerification():
		return v.decideOwnVerification()
	}
	used := v.nonceIsUsed()
	switch until, blocked := v.blocked(); {
	case v.reply == flight.DecisionOpenExpired:
		return nextStep{row: 15, action: actionOpenExpired}
	case v.reply == flight.DecisionSessionEnded:
		return nextStep{row: 16, action: actionLeaseLost}
	case v.reply == flight.DecisionExhausted:
		return nextStep{row: 17, action: actionTooManyOpen}
	case used && f.State == flight.StateInDoubt && !v.nonceHasAttempt():
		return nextStep{row: 18, action: actionAnswerFlight}
	case used, v.reply == flight.DecisionFenced && v.isStep:
		return nextStep{row: 19, action: actionFenced}
	case f != nil && f.State == flight.StateInDoubt && !v.proposed:
		return nextStep{row: 20, action: actionAnswerFlight}
	case f != nil && f.State == flight.StateAwaitingApproval:
		return nextStep{row: 21, action: actionAnswerFlight}
	case v.reply != flight.DecisionNone:
		return v.waitFor(22, v.busyFor)
	case blocked:
		return v.waitFor(23, until)
	case v.nodeStops:
		return nextStep{row: 24, action: actionDraining}
	case v.tooManyOpen:
		return nextStep{row: 25, action: actionTooManyOpen}
	}
	return nextStep{row: 26, action: actionOpen}
}

// decideOwnAttempt leads to actionProceed: the attempt's session is renewed, then its claim is confirmed.
func (v *view) decideOwnAttempt() nextStep {
	switch {
	case v.session == etcdUnknown:
		return nextStep{row: 3, action: actionRenewSession}
	case v.session == etcdLost, v.claim == etcdLost:
		return nextStep{row: 4, action: actionLeaseLost, check: v.holder()}
	case v.session == etcdUnavailable, v.claim == etcdUnavailable:
		return nextStep{row: 5, action: actionLeaseUnavailable}
	case v.claim == etcdForeign:
		return nextStep{row: 6, action: actionReplaceClaim}
	case v.claim == etcdUnknown:
		return nextStep{row: 7, action: actionFinishClaim}
	}
	return nextStep{row: 8, action: actionProceed}
}

// decideOwnVerification leads to actionVerify, which needs a session that lives, and no claim.
func (v *view) decideOwnVerification() nextStep {
	switch {
	case v.holder() == nil:
		return nextStep{row: 9, action: actionLeaseLost}
	case v.session == etcdUnknown:
		return nextStep{row: 10, action: actionRenewSession}
	case v.session == etcdLost:
		return nextStep{row: 11, action: actionLeaseLost, check: v.holder()}
	case v.session == etcdUnavailable:
		return nextStep{row: 12, action: actionLeaseUnavailable}
	case v.lookUpDelay > 0:
		return v.waitFor(13, v.lookUpDelay)
	}
	return nextStep{row: 14, action: actionVerify}
}

// ownAttempt returns the open attempt of this nonce, or nil.
func (v *view) ownAttempt() *flight.Attempt {
	if a := v.flight.OpenAttempt(); a != nil && v.flight.State == flight.StateRunning && a.Nonce == v.nonce {
		return a
	}
	return nil
}

// ownVerification reports whether the flight's verification was assigned to this nonce.
func (v *view) ownVerification() bool {
	return v.flight.Verifying() && v.flight.Verification.Nonce == v.nonce
}

// holder returns the session of this nonce's open attempt or verification, or nil if neither is open.
func (v *view) holder() *flight.Session {
	switch a := v.ownAttempt(); {
	case a != nil:
		return &a.Session
	case v.ownVerification() && v.flight.Verification.Session != (flight.Session{}):
		return &v.flight.Verification.Session
	}
	return nil
}

// nonceIsUsed reports whether the nonce can no longer open an attempt.
func (v *view) nonceIsUsed() bool {
	return v.nonceHasAttempt() ||
		v.flight != nil && slices.ContainsFunc(v.flight.UsedNonces, func(u flight.UsedNonce) bool { return u.Nonce == v.nonce })
}

// nonceHasAttempt reports whether the flight still lists an attempt of this nonce.
func (v *view) nonceHasAttempt() bool {
	return v.flight != nil && slices.ContainsFunc(v.flight.Attempts, func(a flight.Attempt) bool { return a.Nonce == v.nonce })
}

// waitFor returns actionWait, for at most the given time (0: until the flight changes), or an answer if the caller does
// not wait or the node stops.
func (v *view) waitFor(row int, pause time.Duration) nextStep {
	d := nextStep{row: row, action: actionWait, pause: max(0, pause)}
	if holder := v.flight.Holder(); holder != nil && !v.ownVerification() {
		d.check = holder
	}
	switch {
	case v.nodeStops:
		d.action = actionDraining
	case !v.callerWaits:
		d.action = actionBusy
	}
	return d
}

// blocked reports whether this node expects the reply DecisionBusy to an Open, and for how long; 0: until the flight
// changes. An overdue attempt does not block: the Open itself ends it.
func (v *view) blocked() (time.Duration, bool) {
	f := v.flight
	if f == nil {
		return 0, false
	}
	blockedUntil, blocked := flight.Time(0), true
	switch a := f.OpenAttempt(); {
	case f.State == flight.StateWaiting && a == nil: // a saga asleep
		blockedUntil = f.Wake.At
	case f.State == flight.StateWaiting:
		blockedUntil = f.Deadline(&v.header)
		blocked = blockedUntil == 0 || v.now < blockedUntil
	case a != nil:
		if blockedUntil = f.Deadline(&v.header); a.Session.Epoch < v.header.LeaseEpoch && (blockedUntil == 0 || v.header.EpochHold < blockedUntil) {
			blockedUntil = v.header.EpochHold
		}
		blocked = blockedUntil == 0 || v.now < blockedUntil
	case f.Verifying():
		if blockedUntil = f.HolderTime(&v.header, f.Verification.NotBefore); v.now >= blockedUntil && f.Verification.Nonce != (flight.Nonce{}) {
			blockedUntil = f.HolderTime(&v.header, f.Verification.Until)
		}
		if v.now >= blockedUntil {
			return v.lookUpDelay, v.lookUpDelay > 0
		}
	case f.State == flight.StateScheduled:
		blockedUntil = f.NotBefore
		blocked = v.now < blockedUntil
	default:
		blocked = false
	}
	return max(0, blockedUntil.Until(v.now)), blocked
}

// callEnd has the facts about an answered call that its cleanup depends on.
type callEnd struct {
	mayAct      bool             // the answer was proceed or verify, and the caller may have received it
	noNonce     bool             // the caller cannot repeat the open
	openUnknown bool             // an Open was proposed, and its answer is not known
	oneShot     flight.SessionID // the session created for this open alone; "": none
}

// cleanup reports what is left to do after a call: abandon the nonce, only if this node has created it; and withdraw
// the one-shot session.
func (v *view) cleanup(e *callEnd) (abandon, withdraw bool) {
	held := v.holder()
	abandon = e.noNonce && !e.mayAct && (e.openUnknown || held != nil)
	return abandon, e.oneShot != "" && (abandon || held == nil || held.ID != e.oneShot)
}
