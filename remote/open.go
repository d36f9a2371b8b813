package remote

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/executor"
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
	return s.serve(ctx, &openCall{Service: s, req: req, start: time.Now()})
}

// openCall is one open being served. Its loop reads, decides and acts until decide returns an answer. One goroutine
// uses it.
type openCall struct {
	*Service
	req      OpenRequest
	id       flight.ID
	start    time.Time
	patience context.Context // ends with the caller's wait, with the request, and when Close begins

	view   view
	newer  *flight.Flight // from the ledger's reply to the caller's finding; used instead of an older local view; nil: none
	seen   flight.Version // of the flight in this node's view, as last read
	joined bool           // this call has waited for another holder
	ending ending

	bound    context.Context // bounds requests to etcd and the ledger until the next wait
	session  lease.Session   // to open under
	notAfter flight.Time     // of the last Open
	holder   lease.Session   // of the attempt or the verification of this nonce
	lease    lease.Lease     // of the attempt of this nonce
	claimed  <-chan error    // receives the answer to the claim that was sent together with the Open
	cause    error           // the last error of etcd
	leave    func()          // unlocks the key; nil: not locked
}

func (s *Service) serve(ctx context.Context, c *openCall) (a OpenAnswer, err error) {
	c.id = c.req.Key.FlightID()
	c.view = view{submission: &c.req.Submission, nonce: c.req.Nonce, step: c.req.Key.IsStep()}
	if called := s.cfg.Events.Called; called != nil {
		defer func() { called(c.req.Key, openWord(a, err), time.Since(c.start)) }()
	}
	if err := c.look(); err != nil {
		return OpenAnswer{}, err
	}
	if d := decide(&c.view); d.action == answerFlight { // needs no session, and is also answered while the node drains
		return c.respond(d.action)
	}
	if !c.calls.Enter() {
		return OpenAnswer{}, errDraining()
	}
	defer c.calls.Leave()
	var cancel context.CancelFunc
	c.patience, cancel = context.WithTimeout(ctx, c.req.Wait)
	defer cancel()
	defer context.AfterFunc(c.serving, cancel)()
	a, err = c.steps(ctx)
	if err == nil && c.req.Unnamed && ctx.Err() != nil { // the caller has gone, and cannot repeat the open
		a, err = OpenAnswer{}, context.Cause(ctx)
	}
	c.leaveQueue()
	c.cleanUp(a.Decision)
	return a, err
}

// run performs the actions of decide until one is an answer.
func (c *openCall) steps(ctx context.Context) (OpenAnswer, error) {
	for {
		if ctx.Err() != nil {
			return OpenAnswer{}, context.Cause(ctx)
		}
		c.view.patient, c.view.draining = c.patience.Err() == nil, c.serving.Err() != nil
		d := decide(&c.view)
		if d.check != nil && c.cfg.Checker != nil {
			c.cfg.Checker.Check(*d.check)
		}
		var err error
		switch d.action {
		case wait:
			err = c.wait(d.pause)
		case open:
			err = c.open(ctx)
		case renewSession: // also of another node: only etcd knows whether the session lives
			if c.bound == nil {
				c.bound = c.asking.Context()
			}
			c.holder, _, c.cause = c.renew(c.bound, c.view.held().ID)
			c.view.session = etcdAnswer(c.cause)
		case finishClaim:
			c.finishClaim()
		case replaceClaim:
			c.noteClaim(c.lease.Replace(c.bound))
		default:
			return c.respond(d.action)
		}
		if err != nil {
			return OpenAnswer{}, err
		}
	}
}

// readFlight reads this node's view of the flight.
func (c *openCall) look() error {
	f, err := c.cfg.Ledger.Flight(c.id)
	if err != nil {
		return answer.Unavailable(c.req.Key, err)
	}
	c.seen = flight.Version{}
	if f != nil {
		c.seen = f.Version
	}
	if c.newer != nil && c.newer.Version.Later(c.seen) {
		f = c.newer
	}
	c.see(f, flight.NoDecision, 0)
	return nil
}

// observe stores in the view what this call now knows of the flight.
func (c *openCall) see(f *flight.Flight, reply flight.Decision, pause time.Duration) {
	v := &c.view
	v.flight, v.reply, v.pause = f, reply, pause
	v.header, v.now, v.settle = c.cfg.Memory.Header(), c.cfg.Memory.Now(), c.Service.settle.Remaining(f)
}

// waitForChange waits until the flight changes in this node's view, or until it is time to read again. The call holds
// no lock meanwhile, only a session.
func (c *openCall) wait(most time.Duration) error {
	c.leaveQueue()
	d := clock.Jitter(recheck)
	if most > 0 {
		d = min(d, most)
	}
	ctx, cancel := context.WithTimeout(c.patience, d)
	defer cancel()
	if _, err := c.cfg.Ledger.Wait(ctx, c.id, c.seen); err != nil && ctx.Err() == nil {
		<-ctx.Done() // the ledger failed: without this pause callers would retry in a busy loop
	}
	c.joined, c.bound, c.newer = true, nil, nil
	if c.holder != nil && c.holder.Trust() < c.holder.TTL()/2 {
		c.view.session = etcdUnknown
	}
	return c.look()
}

// claimAndOpen proposes the Open and claims the key in etcd, both at once. It locks the key first, so that one opener
// of a key at this node proposes at a time; the next opener reads the flight again when it has the lock.
//
// If the process dies after the Open was committed, the attempt is open, and the caller's repeat finds it by its nonce.
// Close waits for the goroutine that claims.
func (c *openCall) open(ctx context.Context) error {
	if c.leave == nil {
		return c.enterQueue(ctx)
	}
	c.bound = c.asking.Context()
	if err := c.takeSession(); err != nil {
		return err
	}
	l, err := c.session.Reserve(c.bound, c.req.Key, c.req.Nonce)
	if err != nil {
		return c.etcdError(err)
	}
	c.cfg.Crash(crashpoint.BeforeOpen)
	claimed := make(chan error, 1)
	bound := c.bound
	c.calls.Go(func() { claimed <- l.Claim(bound) })
	c.cfg.Crash(crashpoint.DuringOpen)
	if c.notAfter = c.req.NotAfter; c.notAfter == 0 {
		c.notAfter = c.cfg.Memory.Now().Add(c.cfg.OpenLife)
	}
	o := &flight.Open{
		Key: c.req.Key, Submission: c.req.Submission, Session: l.Session(), Nonce: c.req.Nonce, NotAfter: c.notAfter,
		Owner: c.req.Owner, StoreEpoch: c.cfg.Memory.Header().StoreEpoch,
	}
	c.view.proposed = true
	reply, err := c.propose(c.bound, o)
	if err != nil {
		if c.ending.unknown = errors.Is(err, executor.ErrAmbiguous); !c.ending.unknown {
			l.Release()
		}
		return answer.Unavailable(c.req.Key, err)
	}
	c.see(reply.Flight, reply.Decision, reply.Wait)
	c.view.session, c.view.claim = etcdUnknown, etcdUnknown
	if held := c.view.held(); held != nil && held.ID == o.Session.ID {
		c.holder = c.session
		if l.Trust() >= c.session.TTL()/2 {
			c.view.session = etcdYes
		}
	}
	a := c.view.ownAttempt()
	if a == nil || a.Session.ID != o.Session.ID { // no own attempt, or one under the session of an earlier delivery
		l.Release()
		return nil
	}
	c.lease, c.claimed = l, claimed
	c.cfg.Crash(crashpoint.AfterOpen)
	if reply.Changed && c.cfg.Events.Opened != nil {
		c.cfg.Events.Opened(c.req.Key, a.Number)
	}
	return nil
}

// lockKey waits for the lock of the key, checks the bounds on open attempts, and reads the flight again.
func (c *openCall) enterQueue(ctx context.Context) error {
	leave, err := c.keys.enter(c.patience, c.id)
	switch {
	case err == nil:
		c.leave = leave
		c.view.full = c.cfg.Sessions.HeldCount() >= c.cfg.MaxOpen
		if id := c.req.Session; id != "" && !c.view.full {
			_, n := c.cfg.Sessions.HeldBy(id, flight.ID{}, 0)
			c.view.full = n >= c.cfg.MaxOpenPerSession
		}
		return c.look()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.serving.Err() != nil:
		return errDraining()
	}
	return c.busy()
}

func (c *openCall) leaveQueue() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// acquireSession gets the session to open under: the caller's, or a one-shot session from the pool of the lessor.
func (c *openCall) takeSession() (err error) {
	if c.req.Session != "" {
		c.session, err = c.cfg.Leases.Session(c.bound, c.req.Session)
		return c.etcdError(err)
	}
	if c.session != nil && c.session.Trust() > 0 {
		return nil
	}
	if c.session, err = c.cfg.Leases.NewSession(c.bound, lease.Spec{TTL: c.req.TTL, Owner: c.req.Owner, OneShot: true}); err != nil {
		return c.etcdError(err)
	}
	c.ending.oneShot = c.session.Ref().ID
	return nil
}

// finishClaim waits for the claim that was sent together with the Open. If this call has sent none, because an earlier
// delivery of the request has opened the attempt, finishClaim claims now: the earlier delivery may not have claimed.
func (c *openCall) finishClaim() {
	var err error
	if c.lease != nil {
		err = <-c.claimed
	} else if c.lease, err = c.holder.Reserve(c.bound, c.req.Key, c.req.Nonce); err == nil {
		err = c.lease.Claim(c.bound)
	}
	c.noteClaim(err)
}

func (c *openCall) noteClaim(err error) {
	c.view.claim, c.cause = etcdAnswer(err), err
}

// cleanUp does the cleanup of an ended call in the background: see the table in the package comment.
func (c *openCall) cleanUp(answered flight.Decision) {
	c.ending.acts, c.ending.unnamed = answered == flight.Proceed || answered == flight.Look, c.req.Unnamed
	abandon, withdraw := c.view.leftover(&c.ending)
	if abandon && c.lease != nil {
		c.lease.Release()
	}
	if !abandon && !withdraw {
		return
	}
	c.background(func(ctx context.Context) {
		if abandon {
			word := AbandonRequest{Key: c.req.Key, Nonce: c.req.Nonce, NotAfter: c.notAfter, Error: "the caller did not receive an answer"}
			for c.abandon(ctx, &word) != nil && clock.Sleep(ctx, clock.Jitter(recheck)) {
			}
		}
		if withdraw {
			c.withdraw(ctx, c.req.Key, c.ending.oneShot)
		}
	})
}
