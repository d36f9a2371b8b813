package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/internal/caller"
	"github.com/flightd/flightd/internal/horizon"
	"github.com/flightd/flightd/lease"
)

// Config is what an executor needs of its neighbours. Ledger, Memory and Leases have no default.
type Config struct {
	Ledger Ledger
	Memory Memory
	Leases lease.Service
	Events Events
	// Owner says in claims and attempts who this is, for people; empty: host:pid.
	Owner string
	// TTL is how long the session outlives this process; 0: lease.DefaultTTL. A claim or an Open that is not answered within
	// half of it is given up.
	TTL time.Duration
	// OpenLife is how long after its proposal an Open may still open an attempt; 0: 30 s.
	OpenLife time.Duration
	// ReportWait is how long a caller waits at least for its outcome to be recorded before it gets *effect.Unrecorded;
	// 0: 10 s.
	ReportWait time.Duration
	// HungAfter is how long after the end of its context a handler is believed to return; then its key is let go and
	// its outcome taken for unknown; 0: 15 s.
	HungAfter time.Duration
	// Checker looks at sessions whose attempts stand in the way of a call; nil: nobody does.
	Checker Checker
	// Crash is called at the named points of no return; nil: nothing happens there.
	Crash func(point string)
}

func (c Config) withDefaults() (Config, error) {
	if c.Ledger == nil || c.Memory == nil || c.Leases == nil {
		return c, errors.New("executor: Config needs Ledger, Memory and Leases")
	}
	if c.Owner == "" {
		host, _ := os.Hostname()
		c.Owner = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	setDefault(&c.TTL, lease.DefaultTTL)
	setDefault(&c.OpenLife, flight.MaxOpenLife/2)
	setDefault(&c.ReportWait, 10*time.Second)
	setDefault(&c.HungAfter, flight.PauseBound)
	if c.OpenLife > flight.MaxOpenLife {
		return c, fmt.Errorf("executor: OpenLife %v is longer than the ledger allows (%v)", c.OpenLife, flight.MaxOpenLife)
	}
	if c.Crash == nil {
		c.Crash = func(string) {}
	}
	return c, nil
}

func setDefault[T int | time.Duration](d *T, value T) {
	if *d == 0 {
		*d = value
	}
}

// Executor runs effects once. Its methods may be called at once from many goroutines.
type Executor struct {
	cfg     Config
	session lease.Session
	trips   trips
	settle  answer.Settling
	writer  answer.Writer
	life    context.Context // of effects; ends when Close loses its patience
	kill    context.CancelCauseFunc
	service context.Context // of those who wait for others; ends when Close begins
	drain   context.CancelCauseFunc
	crew    *crew
	runners *runners
	asking  *horizon.Horizon // patience with etcd and with the ledger
	telling *horizon.Horizon // patience with a report
}

// New makes an executor and its session. Run must be called for dead holders to be noticed unasked.
func New(ctx context.Context, cfg Config) (*Executor, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	session, err := cfg.Leases.NewSession(ctx, lease.Spec{TTL: cfg.TTL, Owner: cfg.Owner, Kept: true})
	if err != nil {
		return nil, fmt.Errorf("executor: no session: %w", err)
	}
	ex := &Executor{
		cfg: cfg, session: session, writer: answer.Writer{Memory: cfg.Memory}, crew: newCrew(), runners: newRunners(),
		asking: horizon.New(cfg.TTL / 3), telling: horizon.New(cfg.ReportWait),
	}
	ex.life, ex.kill = context.WithCancelCause(context.Background())
	ex.service, ex.drain = context.WithCancelCause(ex.life)
	return ex, nil
}

// Do runs h once for the call's key, or gives the receipt of whoever did: the story of one call.
//
// The numbers are those of DESIGN.md 4. Dead before 5: nothing happened. Between 5 and 7: the recovery policy decides.
// After 7: the receipt stands.
func (ex *Executor) Do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	if ex.cfg.Events.Called == nil {
		return ex.do(ctx, call, h)
	}
	start := time.Now()
	result, err := ex.do(ctx, call, h)
	ex.cfg.Events.Called(call.Key, resultWord(result, err), time.Since(start))
	return result, err
}

func (ex *Executor) do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	if err := check(&call, h); err != nil {
		return effect.Result{}, err
	}
	if err := caller.CheckInside(ctx, ex, call.Key); err != nil {
		return effect.Result{}, err
	}
	id := call.Key.FlightID()
	// 3. A receipt found is final. It comes first because it costs nothing.
	result, generation, done, err := ex.stored(id, &call)
	if done {
		return result, err
	}
	// 2. Callers of the same key in this process share one trip.
	t, first := ex.trips.join(ex.service, id, generation, call, h)
	if !first {
		result, err = ex.accompany(ctx, t, call)
		if t.over() && (t.before(generation) || caller.MayLook(err, t.call.LookUp, call.LookUp)) {
			return ex.do(ctx, call, h) // it ended with what was true before this caller came, or could not look
		}
		return result, err
	}
	t.trace = effect.Traceparent(ctx)
	if !ex.crew.enter() {
		ex.trips.leave(t)
		t.end(effect.Result{}, effect.ErrClosed)
		return effect.Result{}, effect.ErrClosed
	}
	ex.runners.run(t, ex.run)
	return t.await(ctx, call.Wait, effect.Executed)
}

// run flies a trip and tells everybody who waits for it.
func (ex *Executor) run(t *trip) {
	defer ex.crew.leave()
	result, err := effect.Result{}, errGone
	defer func() {
		if t.left != nil { // the handler ends this goroutine
			ex.crew.enterMore() // for the next one: this one is aboard, so it is let in
			ex.runners.run(t, ex.run)
			return
		}
		ex.trips.leave(t)
		t.end(result, err)
	}()
	result, err = ex.fly(t)
}

// fly is one trip: open, act, report, as often as the rules say. Its interest ends when nobody waits any more; an effect
// that has started is not bothered by that.
func (ex *Executor) fly(t *trip) (effect.Result, error) {
	defer ex.release(t)
	if left := t.left; left != nil { // by a handler that ended the goroutine before this one
		t.left = nil
		if again, result, err := ex.conclude(t, *left); !again || err != nil {
			return result, err
		}
	}
	for {
		ex.release(t)
		if ex.cfg.Events.Claimed != nil && t.wanted.IsZero() {
			t.wanted = time.Now()
		}
		// 4. Somebody else's attempt is waited for.
		if final, err := ex.waitTurn(t); final != nil || err != nil {
			return ex.ended(t, final, err)
		}
		// 5. The ledger decides. The claim goes out beside the question.
		at, err := ex.open(t)
		if err != nil {
			if err = ex.setBack(t, err); err != nil {
				return effect.Result{}, err
			}
			continue
		}
		t.at = at
		again, result, err := ex.follow(t, at.reply)
		if !again || err != nil {
			return result, err
		}
	}
}

// follow does what the ledger answered to an Open. again: it is worth opening once more.
func (ex *Executor) follow(t *trip, reply flight.Reply) (again bool, result effect.Result, err error) {
	switch reply.Decision {
	case flight.Proceed:
		return ex.act(t)
	case flight.Look:
		return ex.lookUp(t, reply)
	case flight.Busy:
		ex.check(reply.Flight)
		ex.release(t)
		return true, effect.Result{}, ex.pause(t, reply)
	case flight.Exhausted:
		return false, effect.Result{}, &effect.TooMany{Key: t.call.Key, What: "too many opens of this key were given up lately", RetryAfter: flight.MaxOpenLife}
	case flight.SessionEnded: // etcd is asked, and another session is made where it is so
		_, _ = ex.session.Renew(ex.asking.Context())
		return true, effect.Result{}, ex.setBack(t, errUntrusted)
	case flight.Fenced, flight.OpenExpired:
		if t.call.Key.IsStep() {
			return false, effect.Result{}, &effect.Fenced{Key: t.call.Key}
		}
		return true, effect.Result{}, ex.setBack(t, errRefused)
	}
	result, err = ex.answer(reply.Flight, &t.call, effect.Replayed)
	return false, result, err
}

// maxSetbacks is how often in a row an Open may come to nothing before somebody is told: then etcd and the ledger do not
// agree, or a clock runs away.
const maxSetbacks = 6

// setBack pauses before the next Open, longer every time. Errors that no pause mends end the trip.
func (ex *Executor) setBack(t *trip, why error) error {
	ex.release(t)
	passing := errors.Is(why, lease.ErrLost) || errors.Is(why, errUntrusted) || errors.Is(why, errRefused)
	if !passing {
		return answer.Unavailable(t.call.Key, why)
	}
	if t.setbacks++; t.setbacks >= maxSetbacks {
		return &effect.Unavailable{Code: "lease_unavailable", Cause: fmt.Errorf("%s: %w", t.call.Key, why)}
	}
	if !rest(&t.interest, jitter(firstPoll<<t.setbacks)) {
		return context.Cause(&t.interest)
	}
	return nil
}

// Close lets running effects finish and report, as long as ctx lives, and gives up the session. Whoever waits for
// somebody else, and every new call, gets effect.ErrClosed. Effects that still run when ctx ends have their context
// cancelled with that cause and are waited for no longer than Config.HungAfter. When one has not returned even then,
// Close says so and leaves the session to its time to live: giving up its claims would let a successor act beside it.
func (ex *Executor) Close(ctx context.Context) error {
	ex.drain(effect.ErrClosed)
	home := ex.crew.drain()
	select {
	case <-home:
	case <-ctx.Done():
		ex.kill(effect.ErrClosed)
		patience := time.NewTimer(ex.cfg.HungAfter)
		defer patience.Stop()
		select {
		case <-home:
		case <-patience.C:
			return fmt.Errorf("executor: an effect did not end with its context; its claim stands until it expires: %w", context.Cause(ctx))
		}
	}
	ex.kill(effect.ErrClosed)
	ex.runners.close()
	ex.runners.wait()
	ex.asking.Close()
	ex.telling.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	return ex.session.Close(ctx)
}

// closeGrace bounds the last word to etcd.
const closeGrace = 5 * time.Second

func check(call *effect.Call, h effect.Handler) error {
	switch {
	case call.Key.IsZero():
		return &flight.InvalidError{Field: "key", Detail: "the call names no key"}
	case h == nil:
		return &flight.InvalidError{Field: "handler", Detail: "the call brings no handler"}
	case call.Submission.Policy.CanLookUp() && call.LookUp == nil:
		return &flight.InvalidError{Field: "look_up", Detail: "recovery verify needs a look-up"}
	}
	if err := call.Submission.Policy.Check(); err != nil {
		return err
	}
	return checkInput(&call.Submission)
}

func checkInput(s *flight.Submission) error {
	if s.Input.Size > flight.MaxInput {
		return &flight.InvalidError{Field: "input", Detail: fmt.Sprintf("it has %d bytes; at most %d are allowed", s.Input.Size, flight.MaxInput)}
	}
	return nil
}
