package remote

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/lease"
)

// Open asks for the right to perform an effect. Only an answer with flight.DecisionProceed means: act.
//
// If the process dies before the Open is committed, nothing happened. If it dies after that, a repeat with the same
// nonce gets the same attempt from any node, as long as the attempt's session lives. The attempt ends with its session.
func (s *Service) Open(ctx context.Context, req OpenRequest) (OpenAnswer, error) {
	if err := checkOpen(&req); err != nil {
		return OpenAnswer{}, err
	}
	return s.serve(ctx, s.newCall(req))
}

func (s *Service) newCall(req OpenRequest) *openCall {
	c := &openCall{Service: s, req: req, id: req.Key.FlightID(), start: time.Now()}
	c.view = view{submission: &c.req.Submission, nonce: c.req.Nonce, isStep: c.req.Key.IsStep()}
	return c
}

// openCall is one open being served. Its loop reads, decides and acts until decide returns an answer. One goroutine
// uses it.
type openCall struct {
	*Service
	req     OpenRequest
	id      flight.ID
	start   time.Time
	waitCtx context.Context // ends with the caller's wait, with the request, and when Close begins
	endWait context.CancelFunc

	view         view
	newerFlight  *flight.Flight // from the ledger's reply to the caller's finding; used instead of an older local view; nil: none
	localVersion flight.Version // of the flight in this node's view, as last read
	joined       bool           // this call has waited for another holder
	end          callEnd

	requestCtx    context.Context // bounds requests to etcd and the ledger until the next wait
	session       lease.Session   // to open under
	notAfter      flight.Time     // of the last Open
	holderSession lease.Session   // of the attempt or the verification of this nonce
	lease         lease.Lease     // of the attempt of this nonce
	claimResult   <-chan error    // receives the answer to the claim that was sent together with the Open
	etcdErr       error           // the last error of etcd
	unlock        func()          // unlocks the key; nil: not locked
	limitErr      error           // of Config.Limits, with view.tooManyOpen; nil: another bound was reached
}

func (s *Service) serve(ctx context.Context, c *openCall) (a OpenAnswer, err error) {
	if called := s.cfg.Events.Called; called != nil {
		defer func() { called(c.req.Key, resultLabel(a, err), time.Since(c.start)) }()
	}
	if err := c.readFlight(); err != nil {
		return OpenAnswer{}, err
	}
	if d := decide(&c.view); d.action == actionAnswerFlight { // needs no session, and is also answered while the node drains
		return c.respond(d.action)
	}
	if !c.calls.Enter() {
		return OpenAnswer{}, drainingError()
	}
	defer c.calls.Leave()
	c.waitCtx, c.endWait = context.WithTimeout(ctx, c.req.Wait)
	defer c.endWait()
	defer context.AfterFunc(c.drainCtx, c.endWait)()
	defer c.unlockKey()
	a, err = c.run(ctx)
	if err == nil && c.req.NoNonce && ctx.Err() != nil { // the caller has gone, and cannot repeat the open
		a, err = OpenAnswer{}, context.Cause(ctx)
	}
	c.unlockKey()
	c.cleanUp(a.Decision)
	return a, err
}

// run performs the actions of decide until one is an answer.
func (c *openCall) run(ctx context.Context) (OpenAnswer, error) {
	for {
		// A caller that leaves while it waits opens nothing. In every other case the open continues after the end of its request, because
		// net/http also ends the request when the caller has closed its half of the connection and still reads the answer.
		if ctx.Err() != nil && c.joined && c.view.holder() == nil {
			return OpenAnswer{}, context.Cause(ctx)
		}
		c.view.callerWaits, c.view.nodeStops = c.waitCtx.Err() == nil, c.drainCtx.Err() != nil
		d := decide(&c.view)
		if d.check != nil && c.cfg.Checker != nil {
			c.cfg.Checker.Check(*d.check)
		}
		var err error
		switch d.action {
		case actionWait:
			if err = c.waitForChange(d.pause); err == nil {
				err = c.req.stillAllowed()
			}
		case actionOpen:
			err = c.claimAndOpen(ctx)
		case actionRenewSession: // also of another node: only etcd knows whether the session lives
			if c.requestCtx == nil {
				c.requestCtx = c.requestDeadline.Context()
			}
			c.holderSession, _, c.etcdErr = c.renew(c.requestCtx, c.view.holder().ID)
			c.etcdErr = c.closedIsLost(c.etcdErr)
			c.view.session = etcdStateOf(c.etcdErr)
		case actionFinishClaim:
			c.finishClaim()
		case actionReplaceClaim:
			c.recordClaim(c.lease.Replace(c.requestCtx))
		default:
			return c.respond(d.action)
		}
		if err != nil {
			return OpenAnswer{}, err
		}
	}
}

// readFlight reads this node's view of the flight.
func (c *openCall) readFlight() error {
	f, err := c.cfg.Ledger.Flight(c.id)
	if err != nil {
		return answer.Unavailable(c.req.Key, err)
	}
	c.localVersion = flight.Version{}
	if f != nil {
		c.localVersion = f.Version
	}
	if c.newerFlight != nil && c.newerFlight.Version.After(c.localVersion) {
		f = c.newerFlight
	}
	c.observe(f, flight.DecisionNone, 0)
	return nil
}

// observe stores in the view what this call now knows of the flight.
func (c *openCall) observe(f *flight.Flight, reply flight.Decision, pause time.Duration) {
	v := &c.view
	v.flight, v.reply, v.busyFor = f, reply, pause
	v.header, v.now, v.lookUpDelay = c.cfg.Reader.Header(), c.cfg.Reader.Now(), c.Service.lookUpDelay.Remaining(f)
}

// waitForChange waits until the flight changes in this node's view, or until it is time to read again. The call holds
// no lock meanwhile, only a session.
func (c *openCall) waitForChange(limit time.Duration) error {
	c.unlockKey()
	if limits := c.cfg.Limits; limits != nil {
		end, ok := limits.StartWait(c.req.Key.Namespace(), true)
		if !ok { // too many opens wait: the wait of this one is over
			c.endWait()
			return nil
		}
		defer end()
	}
	d := clock.Jitter(retryPause)
	if limit > 0 {
		d = min(d, limit)
	}
	ctx, cancel := context.WithTimeout(c.waitCtx, d)
	defer cancel()
	if _, err := c.cfg.Ledger.Wait(ctx, c.id, c.localVersion); err != nil && ctx.Err() == nil {
		<-ctx.Done() // the ledger failed: without this pause callers would retry in a busy loop
	}
	c.joined, c.requestCtx, c.newerFlight = true, nil, nil
	if c.holderSession != nil && c.holderSession.Trust() < c.holderSession.TTL()/2 {
		c.view.session = etcdUnknown
	}
	return c.readFlight()
}

// claimAndOpen proposes the Open and claims the key in etcd, both at once. It locks the key first, so that one opener
// of a key at this node proposes at a time; the next opener reads the flight again when it has the lock.
//
// If the process dies after the Open was committed, the attempt is open, and the caller's repeat finds it by its nonce.
// Close waits for the goroutine that claims.
func (c *openCall) claimAndOpen(ctx context.Context) error {
	switch {
	case c.req.Callback && c.req.PublicURL == "":
		return NoCallbacksError()
	case c.unlock == nil:
		return c.lockKey(ctx)
	}
	c.requestCtx = c.requestDeadline.Context()
	if err := c.acquireSession(); err != nil {
		return err
	}
	l, err := c.session.Reserve(c.requestCtx, c.req.Key, c.req.Nonce)
	if err != nil {
		return c.etcdError(err)
	}
	c.cfg.Crash(crashpoint.BeforeOpen)
	claimed := make(chan error, 1)
	bound := c.requestCtx
	c.calls.Go(func() { claimed <- l.Claim(bound) })
	c.cfg.Crash(crashpoint.DuringOpen)
	if c.notAfter = c.req.NotAfter; c.notAfter == 0 {
		c.notAfter = c.cfg.Reader.Now().Add(c.cfg.OpenLife)
	}
	o := &flight.Open{
		Key: c.req.Key, Submission: c.req.Submission, Session: l.Session(), Nonce: c.req.Nonce, NotAfter: c.notAfter,
		Owner: c.req.Owner, StoreEpoch: c.cfg.Reader.Header().StoreEpoch, Trace: c.req.Trace,
	}
	c.view.proposed = true
	reply, err := c.propose(c.requestCtx, o)
	if err != nil {
		if c.end.openUnknown = errors.Is(err, effect.ErrAmbiguous); !c.end.openUnknown {
			l.Release()
		}
		return answer.Unavailable(c.req.Key, err)
	}
	c.observe(reply.Flight, reply.Decision, reply.Wait)
	c.view.session, c.view.claim = etcdUnknown, etcdUnknown
	if held := c.view.holder(); held != nil && held.ID == o.Session.ID {
		c.holderSession = c.session
		if l.Trust() >= c.session.TTL()/2 {
			c.view.session = etcdConfirmed
		}
	}
	a := c.view.ownAttempt()
	if a == nil || a.Session.ID != o.Session.ID { // no own attempt, or one under the session of an earlier delivery
		l.Release()
		return nil
	}
	c.lease, c.claimResult = l, claimed
	c.cfg.Crash(crashpoint.AfterOpen)
	if reply.Changed && c.cfg.Events.Opened != nil {
		c.cfg.Events.Opened(c.req.Key, a.Number)
	}
	return nil
}

// lockKey waits for the lock of the key, reads the flight again, and checks the bounds on open attempts. decide uses the
// result only where a new attempt would be opened.
func (c *openCall) lockKey(ctx context.Context) error {
	leave, err := c.keyLocks.lock(c.waitCtx, c.id)
	if err == nil {
		c.unlock = leave
	}
	if err := c.req.stillAllowed(); err != nil {
		return err
	}
	switch {
	case err == nil:
		c.view.tooManyOpen = c.cfg.Sessions.HeldCount() >= c.cfg.MaxOpen
		if id := c.req.Session; id != "" && !c.view.tooManyOpen {
			_, n := c.cfg.Sessions.HeldBy(id, flight.ID{}, 0)
			c.view.tooManyOpen = n >= c.cfg.MaxOpenPerSession
		}
		if err := c.readFlight(); err != nil {
			return err
		}
		if f := c.view.flight; c.cfg.Limits != nil && !c.view.tooManyOpen {
			c.limitErr = c.cfg.Limits.AllowAttempt(c.req.Key, f == nil || f.State == flight.StateAbsent)
			c.view.tooManyOpen = c.limitErr != nil
		}
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.drainCtx.Err() != nil:
		return drainingError()
	}
	return c.busyError()
}

func (r *OpenRequest) stillAllowed() error {
	if r.StillAllowed == nil {
		return nil
	}
	return r.StillAllowed()
}

func (c *openCall) unlockKey() {
	if c.unlock != nil {
		c.unlock()
		c.unlock = nil
	}
}

// acquireSession gets the session to open under: the caller's, or a one-shot session from the pool of the lessor.
func (c *openCall) acquireSession() (err error) {
	if c.req.Session != "" {
		c.session, err = c.cfg.Leases.Session(c.requestCtx, c.req.Session)
		return c.etcdError(err)
	}
	if c.session != nil && c.session.Trust() > 0 {
		return nil
	}
	if c.session, err = c.cfg.Leases.NewSession(c.requestCtx, lease.Spec{TTL: c.req.TTL, Owner: c.req.Owner, OneShot: true}); err != nil {
		return c.etcdError(err)
	}
	c.end.oneShot = c.session.Ref().ID
	return nil
}

// finishClaim waits for the claim that was sent together with the Open. If this call has sent none, because an earlier
// delivery of the request has opened the attempt, finishClaim claims now: the earlier delivery may not have claimed.
func (c *openCall) finishClaim() {
	var err error
	if c.lease != nil {
		err = <-c.claimResult
	} else if c.lease, err = c.holderSession.Reserve(c.requestCtx, c.req.Key, c.req.Nonce); err == nil {
		err = c.lease.Claim(c.requestCtx)
	}
	c.recordClaim(err)
}

func (c *openCall) recordClaim(err error) {
	c.etcdErr = c.closedIsLost(err)
	c.view.claim = etcdStateOf(c.etcdErr)
}

// cleanUp does the cleanup of an ended call in the background: see the table in the package comment.
func (c *openCall) cleanUp(decision flight.Decision) {
	c.end.mayAct, c.end.noNonce = decision == flight.DecisionProceed || decision == flight.DecisionVerify, c.req.NoNonce
	abandon, withdraw := c.view.cleanup(&c.end)
	if abandon && c.lease != nil {
		c.lease.Release()
	}
	if !abandon && !withdraw {
		return
	}
	c.runInBackground(func(ctx context.Context) {
		if abandon {
			req := AbandonRequest{Key: c.req.Key, Nonce: c.req.Nonce, NotAfter: c.notAfter, Error: "the caller did not receive an answer"}
			for c.abandon(ctx, &req) != nil && clock.Sleep(ctx, clock.Jitter(retryPause)) {
			}
		}
		if withdraw {
			c.withdrawSession(ctx, c.req.Key, c.end.oneShot)
		}
	})
}
