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

// Open asks for permission to perform an effect. Only an answer with flight.Proceed means act.
//
// If the process dies before the Open is committed, nothing happened. If it dies after that, a repeat with the same nonce
// gets the same attempt from any node, as long as the attempt's session lives. When that has ended, so does the attempt.
func (s *Service) Open(ctx context.Context, req OpenRequest) (OpenAnswer, error) {
	if err := checkOpen(&req); err != nil {
		return OpenAnswer{}, err
	}
	return s.serve(ctx, &openCall{Service: s, req: req, start: time.Now()})
}

// openCall is one open being served: it looks, decides and acts, until decide gives an answer.
type openCall struct {
	*Service
	req      OpenRequest
	id       flight.ID
	start    time.Time
	patience context.Context // ends when the caller's wait does, when the caller goes, and when the service drains

	view   view
	newer  *flight.Flight // as the ledger has answered it before the first look; nil: no answer, or an old one by now
	seen   flight.Version // of the flight in this node's own view, when it was read last
	joined bool           // somebody else's attempt was waited for
	ending ending

	bound    context.Context // of what is asked of etcd and of the ledger, until the next wait
	session  lease.Session   // to open under
	notAfter flight.Time     // of the last Open
	holder   lease.Session   // of the attempt or the look-up of this nonce
	lease    lease.Lease     // of the attempt of this nonce
	claimed  <-chan error    // the answer to the claim that went out beside the Open
	cause    error           // why etcd was no help
	leave    func()          // ends this call's turn at the key; nil: it has none
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
	if d := decide(&c.view); d.action == answerFlight { // needs no session, and is said while the node drains, too
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
	if err == nil && c.req.Unnamed && ctx.Err() != nil { // nobody hears it, and nobody can ask for it again
		a, err = OpenAnswer{}, context.Cause(ctx)
	}
	c.leaveQueue()
	c.cleanUp(a.Decision)
	return a, err
}

// steps does what decide says until that is an answer.
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
		case renewSession: // whoever made it: only etcd knows whether it lives
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

// look reads the flight as this node knows it.
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

// see notes what is known of the flight now.
func (c *openCall) see(f *flight.Flight, reply flight.Decision, pause time.Duration) {
	v := &c.view
	v.flight, v.reply, v.pause = f, reply, pause
	v.header, v.now, v.settle = c.cfg.Memory.Header(), c.cfg.Memory.Now(), c.Service.settle.Remaining(f)
}

// wait waits until the flight is another one in this node's view, or it is time to look again. Nothing is held meanwhile but
// a session.
func (c *openCall) wait(most time.Duration) error {
	c.leaveQueue()
	d := clock.Jitter(recheck)
	if most > 0 {
		d = min(d, most)
	}
	ctx, cancel := context.WithTimeout(c.patience, d)
	defer cancel()
	if _, err := c.cfg.Ledger.Wait(ctx, c.id, c.seen); err != nil && ctx.Err() == nil {
		<-ctx.Done() // the ledger cannot tell: without this pause callers would ask it in a circle
	}
	c.joined, c.bound, c.newer = true, nil, nil
	if c.holder != nil && c.holder.Trust() < c.holder.TTL()/2 {
		c.view.session = etcdUnknown
	}
	return c.look()
}

// open proposes the Open and claims the key, both at once. Of the openers of a key at this node, one at a time does so; the
// others look again when it is their turn.
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
	if a == nil || a.Session.ID != o.Session.ID { // after any other answer, and where the attempt is of an earlier session
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

// enterQueue waits for this call's turn at the key, and looks again.
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

// takeSession gets the session to open under: the caller's, or one from the pool, whose marker is in etcd already.
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

// finishClaim waits for the claim that went out beside the Open. Where this call has sent none, because the attempt was
// opened by an earlier sending of this nonce, it makes the claim now: that of the earlier sending may not have been made.
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

// cleanUp does in the background what the call leaves.
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
			word := AbandonRequest{Key: c.req.Key, Nonce: c.req.Nonce, NotAfter: c.notAfter, Error: "its caller could not be answered"}
			for c.abandon(ctx, &word) != nil && clock.Sleep(ctx, clock.Jitter(recheck)) {
			}
		}
		if withdraw {
			c.withdraw(ctx, c.req.Key, c.ending.oneShot)
		}
	})
}
