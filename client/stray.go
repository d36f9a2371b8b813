package client

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

const (
	// strayPatience bounds how long the answer to an open that was given up is asked for at once.
	strayPatience = 5 * time.Second
	// strayLongest is for how long it is asked for again and again, where no server could say what became of it, and no session
	// is renewed that would tell.
	strayLongest = 10 * time.Minute
	// strayWait is how long a server may take to find out what became of it: it may still be at it.
	strayWait = 500 * time.Millisecond
)

// pursue settles an open that was given up, and that may be carried out all the same: nobody else would ever say that
// nothing was sent, and with its session it would end in doubt. Only then its session lets the nonce go. What could not
// be settled is left to the session's renewals, which do not list it; without a session of the caller's it is pursued until the
// client is closed.
func (l *leg) pursue() {
	l.client.work.Go(func() { // the trip itself is counted, so that this one may be
		settled := l.giveBack()
		if l.session != nil {
			l.session.drop(l.nonce, !settled)
			return
		}
		pause, until := firstPause, time.Now().Add(strayLongest)
		for !settled && time.Now().Before(until) && sleep(l.client.ending, pause) {
			pause = min(2*pause, 2*time.Second)
			settled = l.giveBack()
		}
	})
}

// giveBack asks once more for the answer to the leg's open, and gives back what it opened. It answers whether nothing of
// this nonce is left.
func (l *leg) giveBack() bool {
	c, key := l.client, l.trip.call.Key
	ctx, cancel := context.WithTimeout(l.trip.values, strayPatience)
	defer cancel()
	r, wait := l.openRequest(), strayWait.Milliseconds()
	r.WaitMS = &wait
	answer, err := c.Open(ctx, key, r)
	if CodeOf(err) == wire.InFlight { // who came behind the first one may have been before this one; what is known now is said at once
		answer, err = c.Open(ctx, key, r)
	}
	switch {
	case err != nil:
		code := CodeOf(err)
		busy := code == wire.InFlight && l.session != nil // who renews a session finds out yet
		return code != "" && !busy && !aboutTheWay(code) && !answer.unsure
	case answer.Decision == wire.DecisionProceed:
		_, err = c.Report(ctx, key, ReportRequest{FencingToken: answer.FencingToken, Outcome: flight.NotDone.String(), Error: "its caller gave up before it was answered"})
		return verdictOn(err) == taken
	case answer.Decision == wire.DecisionReplay:
		return true
	case answer.Session != r.Session: // it was made for this look-up alone
		return c.CloseSession(ctx, answer.Session) == nil
	}
	return false
}
