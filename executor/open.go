package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/lease"
)

var (
	errGone      = errors.New("executor: the goroutine of this call was ended, not by its handler")
	errUntrusted = errors.New("sessions are made, but lost before they can be used")
	errRefused   = errors.New("the ledger refuses every open: its epochs, or its time, are not those that this node knows")
)

// attempt is one Open of a call: what was asked for, and what came of it.
type attempt struct {
	open  *flight.Open
	lease lease.Lease
	sent  time.Time // when the Open was first sent: the attempt's time-out counts from here
	reply flight.Reply
}

// open asks etcd for the claim and the ledger for an attempt, both at once. The attempt alone is the right to act; the claim
// keeps others from asking. The caller must call release of an attempt that it gets.
//
// If the process dies here, the claim and the attempt may be there or not. Both end with the session.
func (ex *Executor) open(t *trip) (*attempt, error) {
	a := &attempt{}
	nonce := newNonce()
	var err error
	if a.lease, err = ex.session.Reserve(ex.asking.Context(), t.call.Key, nonce); err != nil {
		return nil, err
	}
	if a.lease.Trust() <= 0 { // the machine may have been suspended; only etcd knows whether for too long
		if _, err := ex.session.Renew(ex.asking.Context()); err != nil || a.lease.Trust() <= 0 {
			a.lease.Release()
			return nil, errors.Join(errUntrusted, err)
		}
	}
	ex.cfg.Crash(beforeOpen)
	claimed := make(chan error, 1)
	ex.crew.more(func() { claimed <- a.lease.Claim(ex.asking.Context()) })
	ex.cfg.Crash(duringOpen)
	a.open = &flight.Open{
		Key: t.call.Key, Submission: t.call.Submission, Session: a.lease.Session(), Nonce: nonce, Owner: ex.cfg.Owner,
		NotAfter: ex.cfg.Memory.Now().Add(ex.cfg.OpenLife), StoreEpoch: ex.cfg.Memory.Header().StoreEpoch,
	}
	a.sent = time.Now()
	if a.reply, err = ex.propose(a.open); err != nil {
		if errors.Is(err, ErrAmbiguous) {
			ex.abandonInBackground(a)
		} else {
			a.lease.Release()
		}
		return nil, err
	}
	t.sees(a.reply.Flight)
	if a.reply.Decision != flight.Proceed {
		return a, nil
	}
	ex.cfg.Crash(afterOpen)
	if err := ex.finishClaim(a, <-claimed); err != nil {
		return nil, errors.Join(err, ex.abandon(a, "its claim could not be made"))
	}
	return a, nil
}

// finishClaim replaces the claim of another holder, whose attempt is over: the ledger has said so.
func (ex *Executor) finishClaim(a *attempt, err error) error {
	if errors.Is(err, lease.ErrHeld) {
		err = a.lease.Replace(ex.asking.Context())
	}
	if err != nil && ex.asking.Context().Err() != nil {
		return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
	}
	return err
}

// propose asks until the answer is known, for half a TTL at most: an opener that cannot reach the ledger must not keep
// others from the key. It does not end with the caller, because an Open whose answer nobody hears is a doubt; asking again
// for the same nonce is harmless.
func (ex *Executor) propose(open *flight.Open) (flight.Reply, error) {
	ctx := ex.asking.Context()
	for unknown := error(nil); ; {
		reply, err := ex.cfg.Ledger.Propose(ctx, open)
		switch {
		case errors.Is(err, ErrAmbiguous):
			if unknown = err; rest(ctx, jitter(firstPoll)) {
				continue
			}
		case err != nil && unknown != nil: // this one was not taken; an earlier one may have been
			err = fmt.Errorf("%w; then: %w", unknown, err)
		case err == nil && unknown != nil && reply.Decision == flight.Fenced:
			err = fmt.Errorf("%w: its attempt ended before its opener heard of it", unknown)
		}
		ex.cfg.Events.Note(open.Key, reply.Events)
		return reply, err
	}
}

// abandon says that nothing was sent in an attempt, nor will be, and lets the claim go. If the ledger does not answer, it is
// told again in the background.
func (ex *Executor) abandon(a *attempt, why string) error {
	command := a.abandonment(why)
	reply, err := ex.cfg.Ledger.Propose(ex.asking.Context(), command)
	if err != nil {
		ex.abandonInBackground(a)
		return err
	}
	ex.cfg.Events.Note(command.Key, reply.Events)
	a.lease.Release()
	return nil
}

func (a *attempt) abandonment(why string) *flight.Abandon {
	return &flight.Abandon{Key: a.open.Key, Nonce: a.open.Nonce, NotAfter: a.open.NotAfter, StoreEpoch: a.open.StoreEpoch, Error: why}
}

// abandonInBackground abandons an Open whose answer is not known, until the ledger has answered. Close waits for it. If the
// process dies first, the attempt that may be open ends with its session.
func (ex *Executor) abandonInBackground(a *attempt) {
	ex.background(reportHold, func(ctx context.Context) {
		command := a.abandonment("its opener gave up")
		if reply, err := ex.insist(ctx, command); err == nil {
			ex.cfg.Events.Note(command.Key, reply.Events)
		}
	}, a.lease.Release)
}

// insist proposes a command until the ledger has answered, or ctx ends.
func (ex *Executor) insist(ctx context.Context, c flight.Command) (flight.Reply, error) {
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		reply, err := ex.cfg.Ledger.Propose(ctx, c)
		if err == nil || !rest(ctx, jitter(pause)) {
			return reply, err
		}
	}
}

// background runs f for at most so long, and then finally, also when there is no time left for f. Close waits for both.
func (ex *Executor) background(most time.Duration, f func(ctx context.Context), finally func()) {
	if !ex.crew.enterMore() {
		finally()
		return
	}
	go func() {
		defer ex.crew.leave()
		defer finally()
		ctx, cancel := context.WithTimeout(ex.life, most)
		defer cancel()
		f(ctx)
	}()
}

// release lets the claim of the trip's attempt go, unless another goroutine goes on with it.
func (ex *Executor) release(t *trip) {
	if t.at == nil || t.left != nil {
		return
	}
	ex.cfg.Crash(beforeRelease)
	t.at.lease.Release()
	t.at = nil
}

// ended ends a trip that need not open, or cannot.
func (ex *Executor) ended(t *trip, f *flight.Flight, err error) (effect.Result, error) {
	t.sees(f)
	switch {
	case err == nil:
		return ex.answer(f, &t.call, effect.Joined)
	case t.interest.Err() != nil:
		return effect.Result{}, context.Cause(&t.interest)
	}
	return effect.Result{}, answer.Unavailable(t.call.Key, err)
}

func newNonce() (n flight.Nonce) {
	_, _ = rand.Read(n[:]) // crypto/rand never fails: it ends the program first
	return n
}

// rest waits for d, and reports whether ctx still lives then.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
