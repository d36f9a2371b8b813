package remote_test

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// soakCaller is a caller that follows the protocol, for one key.
type soakCaller struct {
	*soak
	key        flight.Key
	submission flight.Submission
	p          *provider
	kept       bool // it has its own session; otherwise nodes create one for each open
	made       uint32

	// The other fields are used by one goroutine at a time: the caller works or renews.
	session   flight.SessionID
	trusts    time.Time // the end of the trust
	nonces    map[flight.Nonce]*nonceState
	number    uint32    // of the attempt that was answered proceed, until its effect starts or is abandoned; 0: none
	renewNext time.Time // the time of the next renewal
}

// nonceState is a caller's record of a nonce until its session ends.
type nonceState struct {
	gaveUp   bool                  // abandoned before its effect started
	report   *remote.ReportRequest // of the effect that was started
	first    time.Time             // when the open was first sent
	notAfter flight.Time
	requests int
}

func (c *soakCaller) hasTimeout() bool { return c.submission.Policy.AttemptTimeout > 0 }

// run makes some calls in sequence, unless the caller dies.
func (c *soakCaller) run() {
	defer c.recordMayNotAct(c)
	for range 4 {
		c.pause(c.randDuration(20 * time.Second))
		if !c.call() {
			c.count("died")
			return
		}
	}
	c.pause(20 * time.Second) // it renews its session for a while, and handles the attempts that renewals list
}

// pause sleeps and renews meanwhile.
func (c *soakCaller) pause(d time.Duration) {
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return
		}
		if next := time.Until(c.renewNext); c.session != "" && next < left {
			time.Sleep(max(0, next))
			c.renew()
			continue
		}
		time.Sleep(left)
	}
}

// sleepFrozen sleeps without renewals, as after SIGSTOP.
func (c *soakCaller) sleepFrozen(d time.Duration) { time.Sleep(d) }

func (c *soakCaller) renew() {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	c.renewNext = time.Now().Add(4 * time.Second)
	sent, id := time.Now(), c.session
	a, err, answered := callNode(ctx, func(ctx context.Context) (remote.SessionAnswer, error) {
		return c.randomNode().Renew(ctx, id, remote.RenewRequest{OpenDigest: "of what it believes"})
	})
	lost := new(effect.LeaseLost)
	switch {
	case !answered:
	case err == nil:
		c.trust(sent, a.Trust)
		c.checkStillOpen()
		for _, o := range a.Open {
			c.handleListed(o)
		}
	case errors.As(err, &lost):
		c.session, c.trusts = "", time.Time{}
		c.recordMayNotAct(c)
	}
}

func (c *soakCaller) trust(sent time.Time, d time.Duration) {
	if until := sent.Add(d); until.After(c.trusts) {
		c.trusts = until
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, may := c.mayAct[c.key][c]; may {
		c.mayAct[c.key][c] = c.trusts
	}
}

// handleListed is rule 8 of the protocol: the owner of a session reports or abandons an attempt that a renewal lists.
func (c *soakCaller) handleListed(o remote.OpenAttempt) {
	state := c.nonces[o.Nonce]
	switch {
	case state == nil: // of an earlier incarnation
		c.t.Errorf("%s: a renewal lists a nonce that no caller has created", c.key)
	case state.report != nil:
		c.count("reported again")
		c.try(func(ctx context.Context) error { _, err := c.randomNode().Report(ctx, *state.report); return err })
	case state.gaveUp:
		c.count("abandoned by renewal")
		c.try(func(ctx context.Context) error { return c.randomNode().Abandon(ctx, c.abandonRequest(o.Nonce)) })
	}
}

// try sends one request. It returns true if the answer is final.
func (c *soakCaller) try(f func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second+c.randDuration(5*time.Second))
	defer cancel()
	_, err, answered := callNode(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	fenced := new(effect.Fenced)
	return answered && c.randN(10) > 0 && (err == nil || errors.As(err, &fenced))
}

func (c *soakCaller) abandonRequest(n flight.Nonce) remote.AbandonRequest {
	return remote.AbandonRequest{Key: c.key, Nonce: n, NotAfter: c.nonces[n].notAfter}
}

// abandon abandons a nonce, until it is answered.
func (c *soakCaller) abandon(n flight.Nonce) {
	c.number = 0
	c.recordMayNotAct(c)
	c.nonces[n].gaveUp = true
	for !c.try(func(ctx context.Context) error { return c.randomNode().Abandon(ctx, c.abandonRequest(n)) }) {
		c.pause(c.randDuration(time.Second))
	}
	c.count("abandoned")
}

// newNonce creates a nonce with its not_after.
func (c *soakCaller) newNonce() (n flight.Nonce) {
	c.made++
	copy(n[:], c.key.String()[len("billing/charge/"):])
	binary.BigEndian.PutUint32(n[8:], c.made)
	binary.BigEndian.PutUint32(n[12:], uint32(c.randN(1<<30)))
	c.nonces[n] = &nonceState{first: time.Now(), notAfter: c.ledger.Now().Add(30 * time.Second)}
	return n
}

func (c *soakCaller) request(n flight.Nonce) remote.OpenRequest {
	c.nonces[n].requests++
	req := remote.OpenRequest{Key: c.key, Submission: c.submission, Nonce: n, NotAfter: c.nonces[n].notAfter, Owner: "caller"}
	if c.randN(2) == 0 {
		req.Wait = c.randDuration(30 * time.Second)
	}
	if c.kept {
		req.Session = c.session
	}
	return req
}

// call opens until there is a final answer, and follows it; false: the caller has died.
func (c *soakCaller) call() bool {
	if c.kept && c.session == "" {
		ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
		sent := time.Now()
		a, err, answered := callNode(ctx, func(ctx context.Context) (remote.SessionAnswer, error) {
			return c.randomNode().NewSession(ctx, 0, "caller")
		})
		cancel()
		if !answered || err != nil {
			return true
		}
		c.session, c.trusts = a.Session, time.Time{}
		c.trust(sent, a.Trust)
	} else if !c.kept {
		c.session, c.trusts = "", time.Time{}
	}
	return c.open(c.newNonce(), nil)
}

// open sends one open, or the finding before it, until there is a final answer.
func (c *soakCaller) open(n flight.Nonce, verification *remote.VerificationRequest) bool {
	state := c.nonces[n]
	for end := time.Now().Add(5*time.Second + c.randDuration(time.Minute)); ; c.pause(c.randDuration(time.Second)) {
		if time.Now().After(end) {
			c.abandon(n)
			return true
		}
		if c.randN(25) == 0 {
			return false
		}
		a, sent, err, answered := c.send(n, verification)
		switch {
		case !answered: // the request or its answer was lost
		case err == nil && a.Decision == flight.DecisionReplay:
			r := a.Flight.Receipt
			require.NotNil(c.t, r, "%s: receipt %+v", c.key, r)
			require.Equal(c.t, "ch_1", r.ExternalID, "%s: receipt %+v", c.key, r)
			c.count("replay")
			return true
		case err == nil && a.Decision == flight.DecisionVerify:
			return c.lookUp(n, a, sent)
		case err == nil:
			return c.act(n, a, sent)
		case c.isFinal(err):
			return true
		case state.requests == 1 && isUnproposed(err): // rule 6: a copy may still open an attempt
			c.count("left")
			if state.gaveUp = true; !c.kept {
				c.abandon(n)
			}
			return true
		}
	}
}

// send sends the request, and perhaps a copy to another node, and waits for one answer.
func (c *soakCaller) send(n flight.Nonce, verification *remote.VerificationRequest) (a remote.OpenAnswer, sent time.Time, err error, answered bool) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second+c.randDuration(40*time.Second))
	defer cancel()
	ask := func(at *node, req remote.OpenRequest) func(ctx context.Context) (remote.OpenAnswer, error) {
		return func(ctx context.Context) (remote.OpenAnswer, error) {
			if verification != nil {
				v := *verification
				v.Open = req
				return at.Verify(ctx, v)
			}
			return at.Open(ctx, req)
		}
	}
	if c.randN(5) == 0 { // a copy whose answer is ignored
		copied := ask(c.randomNode(), c.request(n))
		go func() { _, _, _ = callNode(ctx, copied) }()
	}
	sent = time.Now()
	done := make(chan struct{})
	first := ask(c.randomNode(), c.request(n))
	go func() {
		defer close(done)
		a, err, answered = callNode(ctx, first)
	}()
	for open := true; open; { // it renews while it waits
		wait := 2 * time.Second
		select {
		case <-done:
			open = false
		case <-time.After(wait):
			if c.session != "" && time.Now().After(c.renewNext) {
				c.renew()
			}
		}
	}
	return a, sent, err, answered && c.randN(8) > 0
}

// isFinal reports whether an error is final for a nonce: nothing was opened under it, and nothing will be.
func (c *soakCaller) isFinal(err error) bool {
	var (
		conflict *effect.Conflict
		expired  *effect.OpenExpired
		doubt    *effect.InDoubt
	)
	switch {
	case errors.As(err, &conflict):
		c.t.Errorf("%s: %v", c.key, err)
	case errors.As(err, &expired):
		c.count("open_expired")
		return true
	case errors.As(err, &doubt) && doubt.Proposed:
		c.count("in_doubt")
		return true
	}
	return false
}

// isUnproposed reports whether a node has answered from its own view, and has not proposed the open.
func isUnproposed(err error) bool {
	busy, doubt := new(effect.Busy), new(effect.InDoubt)
	return errors.As(err, &busy) && !busy.Proposed || errors.As(err, &doubt) && !doubt.Proposed
}

// checkStillOpen checks in the ledger that the caller's attempt is open while the caller may start. Rule 3 (d) may end
// an attempt with a time-out.
func (c *soakCaller) checkStillOpen() {
	if c.number == 0 || c.hasTimeout() || !time.Now().Before(c.trusts) {
		return
	}
	f, _ := c.ledger.Flight(c.key.FlightID())
	open := f.OpenAttempt()
	require.NotNil(c.t, open, "%s: attempt %d may start for %v, and is over: %v, %+v", c.key, c.number, time.Until(c.trusts), f.State, f.Newest())
	require.Equal(c.t, c.number, open.Number, "%s: attempt %d may start for %v, and is over: %v, %+v", c.key, c.number, time.Until(c.trusts), f.State, f.Newest())
}

// useSession makes the caller trust and renew the session of an answer (rule 6).
func (c *soakCaller) useSession(a remote.OpenAnswer, sent time.Time) {
	if c.session != a.Session {
		c.session, c.trusts = a.Session, time.Time{}
	}
	c.trust(sent, a.Trust)
}

// act performs the effect, or not, and reports it until the report is answered; false: the caller has died.
func (c *soakCaller) act(n flight.Nonce, a remote.OpenAnswer, sent time.Time) bool {
	state := c.nonces[n]
	c.useSession(a, sent)
	c.number = a.Flight.AttemptNumber()
	c.recordMayAct(c, c.number)
	c.checkStillOpen()
	c.pause(c.randDuration(3 * time.Second))
	if c.randN(4) == 0 {
		c.sleepFrozen(c.randDuration(40 * time.Second))
	}
	starts := time.Now().Before(c.trusts) && (!c.hasTimeout() || time.Since(state.first) < c.submission.Policy.AttemptTimeout)
	c.checkStillOpen()
	fate := c.randN(20)
	word := reportOf(a, flight.OutcomeSucceeded, "ch_1")
	switch {
	case fate == 0:
		return false // died before the effect
	case !starts || fate < 6:
		c.abandon(n)
		return true
	case fate < 12:
		word = reportOf(a, flight.OutcomeNotDone, "") // the provider was unreachable
		c.count("not done")
	default:
		c.p.Act(a.IdempotencyKey)
		c.count("acted")
	}
	state.report = &word
	c.number = 0 // nothing more starts
	c.recordMayNotAct(c)
	c.pause(c.randDuration(15 * time.Second))
	switch fate {
	case 12:
		return false // died after the effect
	case 13:
		word = reportOf(a, flight.OutcomeUnknown, "")
	}
	for !c.try(func(ctx context.Context) error { _, err := c.randomNode().Report(ctx, word); return err }) {
		c.pause(c.randDuration(time.Second))
	}
	return true
}

// lookUp asks the provider and sends the finding with a new nonce.
func (c *soakCaller) lookUp(n flight.Nonce, a remote.OpenAnswer, sent time.Time) bool {
	c.count("look")
	c.useSession(a, sent)
	c.pause(c.randDuration(5 * time.Second))
	v := &remote.VerificationRequest{ID: a.Flight.ID, Verification: a.Verification, Result: flight.FindingNotHappened}
	if id, found := c.p.Find(a.IdempotencyKey); found {
		v.Result, v.ExternalID, v.Body = flight.FindingHappened, id, flight.NewBlob("", []byte(id), 100)
	} else if c.randN(5) == 0 {
		v.Result = flight.FindingNone
	}
	c.nonces[n].gaveUp = true
	return c.open(c.newNonce(), v)
}
