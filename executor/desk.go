package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Desk serves remote callers, who perform effects themselves: they open a flight, act, and report. All errors are
// those of package effect, *flight.InvalidError, or the context's.
type Desk struct {
	ex     *Executor
	turns  turnstile
	guests guests
	strays sightings
}

func newDesk(ex *Executor) *Desk { return &Desk{ex: ex} }

// Open asks for permission to perform an effect. Only an answer with flight.Proceed means act.
//
// If the process dies before the attempt is committed, nothing happened. If it dies after that, the same session and
// nonce get the same answer from the next process, as long as the session lives; when it does not, the sweeper finds
// the attempt's holder gone.
func (d *Desk) Open(ctx context.Context, req OpenRequest) (OpenAnswer, error) {
	if err := checkOpen(req); err != nil {
		return OpenAnswer{}, err
	}
	start := time.Now()
	answer, err := d.open(ctx, &visit{req: req, id: req.Key.FlightID()})
	answer.countFrom(start)
	if d.ex.cfg.Events.Called != nil {
		d.ex.cfg.Events.Called(req.Key, openWord(answer, err), time.Since(start))
	}
	return answer, err
}

// countFrom gives back the time that a caller was kept waiting. It counts its trust from when it sent the request, and it sent
// it before start: however long it waited, it stops to believe no later than the session's trust ends.
func (a *OpenAnswer) countFrom(start time.Time) {
	if a.Trust > 0 {
		a.Trust += time.Since(start)
	}
}

func (d *Desk) open(ctx context.Context, v *visit) (OpenAnswer, error) {
	if answer, done, err := d.recall(ctx, *v); done {
		return answer, err
	}
	if !d.ex.crew.enter() {
		return OpenAnswer{}, errDraining()
	}
	defer d.ex.crew.leave()
	patience, cancel := context.WithTimeout(ctx, v.req.Wait)
	defer cancel()
	defer context.AfterFunc(d.ex.service, cancel)()
	leave, err := d.turns.enter(patience, v.id)
	if err != nil {
		return d.busy(ctx, *v)
	}
	defer leave()
	if answer, done, err := d.outwait(ctx, patience, *v); done {
		return answer, err
	}
	if d.ex.service.Err() != nil {
		return OpenAnswer{}, errDraining()
	}
	return d.openFor(ctx, patience, v)
}

// openFor opens for the caller's session, or for one of its own. A session that is lost here while its caller waits may live
// all the same, renewed through another node.
func (d *Desk) openFor(ctx, patience context.Context, v *visit) (OpenAnswer, error) {
	for first := true; ; first = false {
		g, err := d.sessionFor(ctx, v.req)
		if err != nil {
			return OpenAnswer{}, err
		}
		if v.lost = false; v.req.Session == "" {
			v.renewed = time.Now()
		}
		answer, err := d.openAs(ctx, patience, g, v)
		if v.lost && (first || patience.Err() == nil) {
			continue
		}
		if !v.forsaken && (err != nil || answer.Decision == flight.Replay || answer.Session != g.session.ID()) {
			d.dismiss(g)
		}
		return answer, err
	}
}

// visit is one open on its way through the desk.
type visit struct {
	req      OpenRequest
	id       flight.ID
	forsaken bool      // what it may have opened is being abandoned, and its session goes only then
	lost     bool      // the caller's session was lost before anything was asked
	renewed  time.Time // when a session that was made for one flight was, as far as this visit knows
}

// keep renews, where it is time, the session that was made for this open alone: its caller has not heard of it yet. Whether
// that went well is seen in its trust.
func (v *visit) keep(ctx context.Context, g guest) {
	if g.oneShot && time.Since(v.renewed) >= g.keepEvery() {
		v.renewed = time.Now()
		_ = prolong(ctx, g)
	}
}

// keepEvery is how often is looked whether it is time: one that was granted ahead has the smaller half of its trust left.
func (g *guest) keepEvery() time.Duration { return g.ttl / (2 * renewals) }

// mine reports whether the open attempt is the one that this open, or an earlier sending of it, has opened.
func (v *visit) mine(f *flight.Flight) bool {
	a := f.OpenAttempt()
	return a != nil && f.State == flight.Running && a.Nonce == v.req.Nonce && (v.req.Session == "" || a.Claim.Session == v.req.Session)
}

// looks reports whether this caller's session was sent to look already. It may be told so again: a look changes
// nothing.
func (v *visit) looks(f *flight.Flight) bool {
	return f.Looking() && v.req.Session != "" && f.Probe.Claim.Session == v.req.Session
}

// final reports whether a flight needs no claim of this caller's any more.
func (v *visit) final(f *flight.Flight) bool {
	return isSettled(f) || differs(f, &v.req.Submission) || v.mine(f) || v.looks(f) || v.late(f)
}

// late reports whether this open has had its attempt, and was only late on its way: where it brought no session, it
// would open another one under a session of its own, and nobody would fly it.
func (v *visit) late(f *flight.Flight) bool { return v.req.Session == "" && spent(f, v.req.Nonce) }

func errDraining() error { return &effect.Unavailable{Code: "draining", Cause: effect.ErrClosed} }

// recall answers without a claim: what is settled, and the repeat of an open whose answer got lost.
func (d *Desk) recall(ctx context.Context, v visit) (answer OpenAnswer, done bool, err error) {
	f, err := d.ex.cfg.Ledger.Flight(v.id)
	if err != nil {
		return answer, true, d.ex.unavailable(v.req.Key, err)
	}
	if f == nil || f.State == flight.Absent || !v.final(f) {
		return answer, false, nil
	}
	answer, err = d.finally(ctx, v, f, false)
	return answer, true, err
}

// finally answers with a flight that is final for this open.
func (d *Desk) finally(ctx context.Context, v visit, f *flight.Flight, joined bool) (OpenAnswer, error) {
	switch {
	case differs(f, &v.req.Submission):
	case v.mine(f):
		return d.again(ctx, v, flight.Reply{Decision: flight.Proceed, Flight: f, Token: f.Newest().Token()}, f.Newest().Claim)
	case v.looks(f):
		return d.again(ctx, v, flight.Reply{Decision: flight.Look, Flight: f, Probe: f.Probe.Number}, f.Probe.Claim)
	case !isSettled(f) && v.late(f):
		return OpenAnswer{}, &effect.Fenced{Key: v.req.Key}
	}
	return d.settled(v, f, joined)
}

// repeatOf asks the ledger whether the attempt that this open, or an earlier sending of it, has opened still stands.
func (d *Desk) repeatOf(v *visit, claim flight.Claim) *flight.Open {
	s := v.req.Submission
	s.Input = s.Input.WithoutData() // nothing is opened with it
	return &flight.Open{
		Key: v.req.Key, Submission: s, Claim: claim, Nonce: v.req.Nonce, Owner: v.req.Owner, Repeat: true,
		NotAfter: d.ex.cfg.Memory.Now().Add(d.ex.cfg.OpenLife), StoreEpoch: d.ex.cfg.Memory.Header().StoreEpoch,
	}
}

// again repeats the answer to an open, while it is still true: its attempt is still open, or the look still wanted. That
// the caller may act is the ledger's to say, not what this node remembers: whoever sent the open first may be abandoning it.
func (d *Desk) again(ctx context.Context, v visit, reply flight.Reply, claim flight.Claim) (OpenAnswer, error) {
	start := time.Now()
	trust, err := d.renewed(ctx, v.req.Key, claim.Session)
	if err != nil {
		return OpenAnswer{}, err
	}
	right := d.guests.rightOf(v.id, claim)
	if reply.Decision == flight.Proceed {
		if reply, err = d.repeated(ctx, &v, claim, right); err != nil {
			return OpenAnswer{}, err
		}
		if f := reply.Flight; reply.Decision != flight.Proceed {
			if f != nil && isSettled(f) {
				return d.settled(v, f, false)
			}
			return OpenAnswer{}, &effect.Fenced{Key: v.req.Key}
		}
	}
	trust -= time.Since(start)
	if right != nil && !outOfSight(right) {
		trust = min(trust, right.Trust()) // a claim that was taken away leaves its session alone
	}
	return d.grant(v, reply, trust)
}

// outwait waits for an attempt that is open already, which needs no session of the caller's: its end is a change of
// the flight, and the sweeper sees to it that a dead holder's attempt ends.
func (d *Desk) outwait(ctx, patience context.Context, v visit) (answer OpenAnswer, done bool, err error) {
	free := func(f *flight.Flight) bool { return v.final(f) || f.OpenAttempt() == nil }
	for {
		f, _, err := d.ex.await(patience, v.id, free, lastPoll)
		switch {
		case err != nil:
			return answer, true, d.ex.unavailable(v.req.Key, err)
		case v.final(f):
			answer, err = d.finally(ctx, v, f, true)
			return answer, true, err
		case f.OpenAttempt() == nil:
			return answer, false, nil
		case patience.Err() != nil:
			answer, err = d.busy(ctx, v)
			return answer, true, err
		}
	}
}

// openAs claims the key for a session and asks the ledger, as often as it answers that it is not yet time.
func (d *Desk) openAs(ctx, patience context.Context, g guest, v *visit) (OpenAnswer, error) {
	for {
		d.ex.cfg.Crash(beforeClaim)
		right, f, err := d.ex.claim(ctx, patience, waiter{session: g.session, key: v.req.Key, id: v.id, final: v.final, held: d.unstick(ctx, g, v),
			waits: func() { v.keep(patience, g) }, every: g.keepEvery()})
		switch {
		case errors.Is(err, errPatience):
			return d.busy(ctx, *v)
		case err != nil && g.oneShot && errors.Is(err, lease.ErrLost): // not the caller's session, and nothing was asked yet
			return OpenAnswer{}, &effect.Unavailable{Code: "lease_unavailable", Cause: err}
		case err != nil:
			v.lost = errors.Is(err, lease.ErrLost)
			return OpenAnswer{}, d.lost(ctx, v.req.Key, err)
		case right == nil:
			return d.finally(ctx, *v, f, true)
		}
		d.ex.cfg.Crash(afterClaim)
		if answer, early, err := d.ask(ctx, patience, g, v, right); !early {
			return answer, err
		}
	}
}

// ask asks the ledger under a claim. early: it is not yet time, and worth asking once more, under another claim. The one that
// waited may be gone by then: where the ledger has sent it to look, the report that makes this needless takes it away.
func (d *Desk) ask(ctx, patience context.Context, g guest, v *visit, right lease.Lease) (answer OpenAnswer, early bool, err error) {
	if ctx.Err() != nil { // nothing was asked yet, or nothing was opened
		right.Release()
		return OpenAnswer{}, false, context.Cause(ctx)
	}
	open := d.ex.newOpen(v.req.Key, &v.req.Submission, right)
	open.Nonce, open.Owner = v.req.Nonce, v.req.Owner
	reply, err := d.ex.propose(open)
	if err != nil {
		return OpenAnswer{}, false, d.failed(g, v, open, right, err)
	}
	d.ex.cfg.Crash(afterOpen)
	if wait := d.waitFor(reply); reply.Decision == flight.Busy || wait > 0 {
		early = d.pause(patience, g, v, reply, wait)
		if right.Release(); !early {
			answer, err = d.busy(ctx, *v)
		}
		return answer, early, err
	}
	told, err := d.confirm(right, reply)
	if err != nil {
		d.giveUp(g, v, reply, right)
		return OpenAnswer{}, false, d.ex.unavailable(v.req.Key, err)
	}
	answer, err = d.follow(ctx, g, v, right, told)
	return answer, false, err
}

// failed gives up an Open that the ledger did not answer.
func (d *Desk) failed(g guest, v *visit, open *flight.Open, right lease.Lease, err error) error {
	if errors.Is(err, ErrAmbiguous) {
		d.forsake(g, v, abandonOf(open), right)
	} else {
		right.Release()
	}
	return d.ex.unavailable(v.req.Key, err)
}

// forsake abandons what was opened for a caller that was not told to act. It may repeat its open meanwhile, here or at
// another node: where the log has the repeat first the caller is told to act, and the attempt is its own.
func (d *Desk) forsake(g guest, v *visit, c *flight.Abandon, right lease.Lease) {
	v.forsaken = true
	d.ex.forsake(c, right, func(right lease.Lease, f *flight.Flight) {
		if f != nil {
			d.guests.board(g, f, right, v.req.Nonce)
			return
		}
		right.Release()
		d.dismiss(g)
	})
}

// waitFor is how much of a settle delay this process must still wait before it lets anybody look.
func (d *Desk) waitFor(reply flight.Reply) time.Duration {
	if reply.Decision == flight.Look || reply.Decision == flight.Busy {
		return d.ex.settle.remaining(reply.Flight)
	}
	return 0
}

// pause waits for what the ledger said, and reports whether it is worth asking again within the caller's patience.
func (d *Desk) pause(patience context.Context, g guest, v *visit, reply flight.Reply, wait time.Duration) bool {
	wait = max(wait, reply.Wait)
	if wait <= 0 {
		wait = jitter(firstPoll)
	}
	if deadline, ok := patience.Deadline(); ok && time.Until(deadline) < wait {
		return false
	}
	for end := time.Now().Add(wait); patience.Err() == nil && time.Now().Before(end); {
		if _, changed := d.ex.waitChange(patience, reply.Flight.ID, reply.Flight.Version, min(time.Until(end), g.keepEvery())); changed {
			break
		}
		v.keep(patience, g)
	}
	return patience.Err() == nil
}

// settled answers with a flight that nobody is about to fly.
func (d *Desk) settled(v visit, f *flight.Flight, joined bool) (OpenAnswer, error) {
	err := d.ex.standing(f, v.req.Key, &v.req.Submission)
	var failed *effect.Failed
	if err != nil && !errors.As(err, &failed) {
		return OpenAnswer{}, err
	}
	return OpenAnswer{Decision: flight.Replay, Flight: f, Joined: joined, PolicyDiffers: f.Policy != v.req.Submission.Policy}, nil
}

// busy says that the wait is over, or that the caller has gone, or that everybody has to.
func (d *Desk) busy(ctx context.Context, v visit) (OpenAnswer, error) {
	switch {
	case ctx.Err() != nil:
		return OpenAnswer{}, context.Cause(ctx)
	case d.ex.service.Err() != nil:
		return OpenAnswer{}, errDraining()
	}
	state := flight.Running
	if f, err := d.ex.cfg.Ledger.Flight(v.id); err == nil && f != nil && f.State != flight.Absent {
		state = f.State
	}
	return OpenAnswer{}, &effect.Busy{Key: v.req.Key, State: state, RetryAfter: lastPoll}
}

// lost gives an error of the lease side the class that callers know.
func (d *Desk) lost(ctx context.Context, key flight.Key, err error) error {
	switch {
	case errors.Is(err, lease.ErrLost):
		return &effect.LeaseLost{Key: key}
	case errors.Is(err, lease.ErrClosed), d.ex.service.Err() != nil:
		return errDraining()
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	var invalid *flight.InvalidError
	if errors.As(err, &invalid) {
		return err
	}
	return &effect.Unavailable{Code: "lease_unavailable", Cause: err}
}

func checkOpen(req OpenRequest) error {
	switch {
	case req.Key.IsZero():
		return &flight.InvalidError{Field: "id", Detail: "the open names no key"}
	case req.Nonce == (flight.Nonce{}):
		return &flight.InvalidError{Field: "nonce", Detail: "an open needs a nonce: 16 random bytes, new for every open that is wanted, the same for every repeat of it"}
	}
	if err := checkInput(&req.Submission); err != nil {
		return err
	}
	return checkTTL(req.TTL)
}

func checkTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < lease.MinTTL || ttl > lease.MaxTTL || ttl%time.Second != 0) {
		return &flight.InvalidError{Field: "ttl_ms", Detail: fmt.Sprintf("it is %v; allowed are whole seconds from %v to %v", ttl, lease.MinTTL, lease.MaxTTL)}
	}
	return nil
}
