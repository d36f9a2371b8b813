package remote

import (
	"errors"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/lease"
)

// view is all that decide looks at: one open of a caller, the flight of its key, and what this call has found out so far.
type view struct {
	submission *flight.Submission
	nonce      flight.Nonce
	step       bool // the key is a saga's step

	flight *flight.Flight // as this node knows it, or as the ledger has just answered; nil: the key was never used
	header flight.Header
	now    flight.Time   // ledger time as this node can tell it
	settle time.Duration // what is left of the settle delay by this node's own clock

	proposed bool            // this call has proposed its Open
	reply    flight.Decision // of the ledger to the Open, as long as nothing newer is known; NoDecision: none
	pause    time.Duration   // with reply Busy: how long it is not worth asking again; 0: not known
	session  etcdState       // of the session that the open attempt, or the look-up, of this nonce names
	claim    etcdState       // of the claim of that attempt

	full     bool // a bound on opens without a report is reached
	patient  bool // the caller waits
	draining bool // this node stops
}

// etcdState is what etcd has answered about a session, or about a claim.
type etcdState uint8

const (
	etcdUnknown etcdState = iota // not asked, or not answered yet
	etcdYes                      // the session was renewed, or made, for this answer; the claim's transaction succeeded
	etcdForeign                  // of a claim: the key bears another one, which the ledger has overruled
	etcdLost                     // the session has ended
	etcdSilent                   // etcd does not answer
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

// action is what a call does next.
type action uint8

const (
	answerFlight      action = iota + 1 // with what the flight says: replay, expired, conflict, in doubt, not approved
	answerProceed                       // the caller may act
	answerLook                          // the caller must ask the provider
	answerBusy                          // somebody else's attempt, or too early
	answerFenced                        // the nonce opens nothing any more
	answerOpenExpired                   // the ledger says so
	answerTooMany                       // nonces of the key, or opens without a report
	answerLost                          // the session that the caller needs has ended
	answerNoEtcd                        // etcd does not answer: nothing is abandoned, the caller asks again
	answerDraining                      // another node will serve it
	wait                                // until the flight changes, or time passes
	open                                // propose the Open, and claim the key at once
	renewSession                        // of the attempt or the look-up
	finishClaim                         // get the answer of the attempt's claim; make one where this call has made none
	replaceClaim                        // overwrite the claim of another holder
)

// decision is what decide gives.
type decision struct {
	row    int // of the table in the package comment
	action action
	pause  time.Duration // with wait: at most so long; 0: no moment is known
	// check is the session that is in the way, or that the caller has lost. Where a read of etcd proves that it has ended,
	// its attempts are ended. nil: none.
	check *flight.Session
}

// decide says what comes next. It is pure: the same view gives the same decision. Its cases are the rows of the table in
// the package comment, in the same order.
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

// grantAttempt leads to answerProceed: the attempt's session is renewed, then its claim is made.
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

// grantLook leads to answerLook, which needs a session that lives and no claim.
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

// ownAttempt is the open attempt of this nonce; nil: none.
func (v *view) ownAttempt() *flight.Attempt {
	if a := v.flight.OpenAttempt(); a != nil && v.flight.State == flight.Running && a.Nonce == v.nonce {
		return a
	}
	return nil
}

// ownLook reports whether the caller of this nonce was sent to ask the provider.
func (v *view) ownLook() bool { return v.flight.Looking() && v.flight.Probe.Nonce == v.nonce }

// held is the session that holds what was opened under this nonce; nil: nothing is open.
func (v *view) held() *flight.Session {
	switch a := v.ownAttempt(); {
	case a != nil:
		return &a.Session
	case v.ownLook() && v.flight.Probe.Session != (flight.Session{}):
		return &v.flight.Probe.Session
	}
	return nil
}

// usedNonce reports whether the nonce opens nothing any more.
func (v *view) usedNonce() bool {
	return v.hadAttempt() ||
		v.flight != nil && slices.ContainsFunc(v.flight.UsedNonces, func(u flight.UsedNonce) bool { return u.Nonce == v.nonce })
}

// hadAttempt reports whether the nonce has opened an attempt that the flight still shows.
func (v *view) hadAttempt() bool {
	return v.flight != nil && slices.ContainsFunc(v.flight.Attempts, func(a flight.Attempt) bool { return a.Nonce == v.nonce })
}

// waitFor waits where the caller does, at most for the given time; 0: until the flight changes.
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

// blocked reports whether an Open would be answered Busy, as far as this node can tell, and for how long; 0: until the flight
// changes. What is overdue blocks nobody: the Open itself ends it.
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

// ending is what is known of a call that has been answered.
type ending struct {
	acts    bool             // its caller was let act, or sent to look, and may have received the answer
	unnamed bool             // its caller cannot repeat the open
	unknown bool             // an Open was proposed, and its answer is not known
	oneShot flight.SessionID // a session that was taken for this open alone; "": none
}

// leftover says what a call leaves to do: abandon its nonce, which is done only for a caller that has none; and withdraw its
// one-shot session.
func (v *view) leftover(e *ending) (abandon, withdraw bool) {
	held := v.held()
	abandon = e.unnamed && !e.acts && (e.unknown || held != nil)
	return abandon, e.oneShot != "" && (abandon || held == nil || held.ID != e.oneShot)
}
