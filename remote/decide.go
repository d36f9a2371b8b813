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
	step       bool // the key is a saga's step

	flight *flight.Flight // this node's view, or the ledger's last reply; nil: the key was never used
	header flight.Header
	now    flight.Time   // this node's estimate of the ledger time
	settle time.Duration // the rest of the settle delay, by this node's own clock

	proposed bool            // this call has proposed its Open
	reply    flight.Decision // of the ledger to the Open, until a newer read; DecisionNone: no reply
	pause    time.Duration   // with reply DecisionBusy: when to propose again; 0: not known
	session  etcdState       // of the session of this nonce's open attempt or verification
	claim    etcdState       // of that attempt's claim

	full     bool // MaxOpenPerSession or MaxOpen is reached
	patient  bool // the caller's wait has not ended
	draining bool // this node stops
}

// etcdState is the answer of etcd about a session or a claim.
type etcdState uint8

const (
	etcdUnknown etcdState = iota // no request, or no answer yet
	etcdYes                      // the session was renewed or created for this answer; the claim's transaction succeeded
	etcdForeign                  // of a claim: the key has another holder's claim, which the ledger has overruled
	etcdLost                     // the session has ended
	etcdSilent                   // etcd did not answer
)

func etcdAnswer(err error) etcdState {
	switch {
	case err == nil:
		return etcdYes
	case errors.Is(err, lease.ErrHeld):
		return etcdForeign
	case errors.Is(err, lease.ErrLost):
		return etcdLost
	}
	return etcdSilent
}

// action is the next step of a call.
type action uint8

const (
	answerFlight      action = iota + 1 // with the flight's state: replay, expired, conflict, in doubt, awaiting approval
	answerProceed                       // the caller may act
	answerLook                          // the caller must look up the outcome
	answerBusy                          // another holder's attempt, or too early
	answerFenced                        // the nonce is used
	answerOpenExpired                   // the ledger has replied so
	answerTooMany                       // abandoned nonces of the key, or opens without a report
	answerLost                          // the caller's session has ended
	answerNoEtcd                        // etcd does not answer: nothing is abandoned, and the caller retries
	answerDraining                      // this node stops; another node serves the caller
	wait                                // until the flight changes, or the pause is over
	open                                // propose the Open and claim the key, both at once
	renewSession                        // of the attempt or the verification
	finishClaim                         // wait for the answer of the attempt's claim; claim now if this call has not claimed
	replaceClaim                        // overwrite another holder's claim
)

// decision is the result of decide.
type decision struct {
	row    int // of the table in the package comment
	action action
	pause  time.Duration // with actionWait: the longest wait; 0: not known
	// check is the session to pass to the Checker: the session that blocks the open, or that the caller has lost; nil:
	// none.
	check *flight.Session
}

// decide returns the next step of a call. It is a pure function. Its cases are the rows of the table in the package
// comment, in the same order.
func decide(v *view) decision {
	f := v.flight
	switch {
	case answer.Differs(f, v.submission), f != nil && f.State.Terminal():
		return decision{row: 1, action: answerFlight}
	case v.ownAttempt() != nil:
		return v.grantAttempt()
	case v.ownLook():
		return v.grantLook()
	}
	used := v.usedNonce()
	switch until, blocked := v.blocked(); {
	case v.reply == flight.OpenExpired:
		return decision{row: 14, action: answerOpenExpired}
	case v.reply == flight.SessionEnded:
		return decision{row: 15, action: answerLost}
	case v.reply == flight.Exhausted:
		return decision{row: 16, action: answerTooMany}
	case used && f.State == flight.InDoubt && !v.hadAttempt():
		return decision{row: 17, action: answerFlight}
	case used, v.reply == flight.Fenced && v.step:
		return decision{row: 18, action: answerFenced}
	case f != nil && f.State == flight.InDoubt && !v.proposed:
		return decision{row: 19, action: answerFlight}
	case f != nil && f.State == flight.AwaitingApproval:
		return decision{row: 20, action: answerFlight}
	case v.reply != flight.NoDecision:
		return v.waitFor(21, v.pause)
	case blocked:
		return v.waitFor(22, until)
	case v.draining:
		return decision{row: 23, action: answerDraining}
	case v.full:
		return decision{row: 24, action: answerTooMany}
	}
	return decision{row: 25, action: open}
}

// decideOwnAttempt leads to actionProceed: the attempt's session is renewed, then its claim is confirmed.
func (v *view) grantAttempt() decision {
	switch {
	case v.session == etcdUnknown:
		return decision{row: 2, action: renewSession}
	case v.session == etcdLost, v.claim == etcdLost:
		return decision{row: 3, action: answerLost, check: v.held()}
	case v.session == etcdSilent, v.claim == etcdSilent:
		return decision{row: 4, action: answerNoEtcd}
	case v.claim == etcdForeign:
		return decision{row: 5, action: replaceClaim}
	case v.claim == etcdUnknown:
		return decision{row: 6, action: finishClaim}
	}
	return decision{row: 7, action: answerProceed}
}

// decideOwnVerification leads to actionVerify, which needs a session that lives, and no claim.
func (v *view) grantLook() decision {
	switch {
	case v.held() == nil:
		return decision{row: 8, action: answerLost}
	case v.session == etcdUnknown:
		return decision{row: 9, action: renewSession}
	case v.session == etcdLost:
		return decision{row: 10, action: answerLost, check: v.held()}
	case v.session == etcdSilent:
		return decision{row: 11, action: answerNoEtcd}
	case v.settle > 0:
		return v.waitFor(12, v.settle)
	}
	return decision{row: 13, action: answerLook}
}

// ownAttempt returns the open attempt of this nonce; nil: none.
func (v *view) ownAttempt() *flight.Attempt {
	if a := v.flight.OpenAttempt(); a != nil && v.flight.State == flight.Running && a.Nonce == v.nonce {
		return a
	}
	return nil
}

// ownVerification reports whether the flight's verification was assigned to this nonce.
func (v *view) ownLook() bool { return v.flight.Looking() && v.flight.Probe.Nonce == v.nonce }

// holder returns the session of this nonce's open attempt or verification; nil: neither is open.
func (v *view) held() *flight.Session {
	switch a := v.ownAttempt(); {
	case a != nil:
		return &a.Session
	case v.ownLook() && v.flight.Probe.Session != (flight.Session{}):
		return &v.flight.Probe.Session
	}
	return nil
}

// nonceIsUsed reports whether the nonce can no longer open an attempt.
func (v *view) usedNonce() bool {
	return v.hadAttempt() ||
		v.flight != nil && slices.ContainsFunc(v.flight.UsedNonces, func(u flight.UsedNonce) bool { return u.Nonce == v.nonce })
}

// nonceHasAttempt reports whether the flight still lists an attempt of this nonce.
func (v *view) hadAttempt() bool {
	return v.flight != nil && slices.ContainsFunc(v.flight.Attempts, func(a flight.Attempt) bool { return a.Nonce == v.nonce })
}

// waitFor returns actionWait, for at most the given time (0: until the flight changes), or an answer if the caller does
// not wait or the node stops.
func (v *view) waitFor(row int, pause time.Duration) decision {
	d := decision{row: row, action: wait, pause: max(0, pause)}
	if holder := v.flight.Holder(); holder != nil && !v.ownLook() {
		d.check = holder
	}
	switch {
	case v.draining:
		d.action = answerDraining
	case !v.patient:
		d.action = answerBusy
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
	until, blocked := flight.Time(0), true
	switch a := f.OpenAttempt(); {
	case f.State == flight.Waiting:
		until = f.Wake.At
		blocked = a == nil || until == 0 || v.now < until
	case a != nil:
		if until = a.Deadline(f.Policy); a.Session.Epoch < v.header.LeaseEpoch && (until == 0 || v.header.EpochHold < until) {
			until = v.header.EpochHold
		}
		blocked = until == 0 || v.now < until
	case f.Looking():
		if until = f.Probe.NotBefore; v.now >= until && f.Probe.Nonce != (flight.Nonce{}) {
			until = f.Probe.Until
		}
		if v.now >= until {
			return v.settle, v.settle > 0
		}
	case f.State == flight.Scheduled:
		until = f.NotBefore
		blocked = v.now < until
	default:
		blocked = false
	}
	return max(0, until.Until(v.now)), blocked
}

// callEnd has the facts about an answered call that its cleanup depends on.
type ending struct {
	acts    bool             // the answer was proceed or verify, and the caller may have received it
	unnamed bool             // the caller cannot repeat the open
	unknown bool             // an Open was proposed, and its answer is not known
	oneShot flight.SessionID // the session created for this open alone; "": none
}

// cleanup reports what is left to do after a call: abandon the nonce, only if this node has created it; and withdraw
// the one-shot session.
func (v *view) leftover(e *ending) (abandon, withdraw bool) {
	held := v.held()
	abandon = e.unnamed && !e.acts && (e.unknown || held != nil)
	return abandon, e.oneShot != "" && (abandon || held == nil || held.ID != e.oneShot)
}
