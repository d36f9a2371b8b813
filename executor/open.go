package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

var (
	errGone      = errors.New("executor: the goroutine of this call was ended, not by its handler")
	errUntrusted = errors.New("claims are made, but lost before they can be used")
	errRefused   = errors.New("the ledger refuses every fresh claim: it is of another epoch, or the ledger's time runs away from ours")
)

// open asks the ledger for an attempt of the trip's flight.
func (ex *Executor) open(t *trip) (flight.Reply, error) {
	open := ex.newOpen(t.call.Key, &t.call.Submission, t.right)
	open.Nonce, open.Owner = newNonce(), ex.cfg.Owner
	reply, err := ex.propose(open)
	if errors.Is(err, ErrAmbiguous) {
		ex.forsake(abandonOf(open), t.right, ex.released)
		t.right = nil
	}
	t.sees(reply.Flight)
	return reply, err
}

func (ex *Executor) newOpen(key flight.Key, s *flight.Submission, right lease.Lease) *flight.Open {
	return &flight.Open{
		Key: key, Submission: *s, Claim: right.Claim(),
		NotAfter: ex.cfg.Memory.Now().Add(ex.cfg.OpenLife), StoreEpoch: ex.cfg.Memory.Header().StoreEpoch,
	}
}

// propose asks until the answer is known, for half a TTL at most: a claim whose holder cannot reach the ledger must
// not keep others from the key. It does not end with the caller, because an Open whose answer nobody hears is a doubt;
// asking again for the same nonce is harmless.
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
		case err == nil && reply.Decision == flight.Fenced && !open.Repeat:
			ex.unsay(open, reply.Flight)
		}
		ex.cfg.Events.Note(open.Key, reply.Events)
		return reply, err
	}
}

// unsay abandons the attempt of this very Open that came to an end before its opener heard of it: nothing was sent, and the
// doubt that it left behind is none. A caller that was told to act for it came by a repeat, of which the ledger knows, and
// then it takes nobody else's word; the caller of a repeat itself may have heard the first answer.
func (ex *Executor) unsay(open *flight.Open, f *flight.Flight) {
	a := f.Newest()
	if a == nil || a.Nonce != open.Nonce || a.Claim != open.Claim {
		return
	}
	c := &flight.Abandon{Key: f.Key, Generation: f.Generation, Token: a.Token(), Error: "it was lost before its opener heard of it"}
	if _, err := ex.insistOn(ex.asking.Context(), c); err != nil {
		ex.background(reportHold, func(ctx context.Context) { _, _ = ex.insistOn(ctx, c) }, func() {})
	}
}

// abandonOf abandons what an Open may have opened whose answer was never seen.
func abandonOf(open *flight.Open) *flight.Abandon {
	return &flight.Abandon{Key: open.Key, Session: open.Claim.Session, Claim: open.Claim, Nonce: open.Nonce, NotAfter: open.NotAfter, Error: "its opener gave up"}
}

// forsake makes sure that no attempt is left behind of which nothing was sent, and only then lets the key go: whoever came
// before that would take the attempt for one that may have acted. It works in the background for as long as a claim may be
// kept; Close waits for it. If the process dies first, the sweeper finds the attempt's holder gone. over gets the claim,
// and the flight whose attempt goes on with it, because its caller was told to act after all; nil: none does.
//
// Where the ledger has not answered by then, and the right was lost meanwhile, nothing more is done: its session may be
// renewed through another node, where its caller was told to act.
func (ex *Executor) forsake(c *flight.Abandon, right lease.Lease, over func(right lease.Lease, f *flight.Flight)) {
	var goesOn *flight.Flight
	answered := false
	ex.background(reportHold, func(ctx context.Context) {
		reply, err := ex.insistOn(ctx, c)
		answered = err == nil
		if answered && reply.Decision == flight.Fenced {
			if a := reply.Flight.OpenAttempt(); a != nil && a.Claim == right.Claim() {
				goesOn = reply.Flight
			}
		}
	}, func() {
		if answered || right.Trust() > 0 {
			over(right, goesOn)
		}
	})
}

// released lets go of a claim whose caller cannot have been told anything: its nonce never left this process.
func (ex *Executor) released(right lease.Lease, _ *flight.Flight) { right.Release() }

// abandon ends an attempt of which nothing was sent, and then lets its claim go. If the ledger does not hear of it, it is
// told again and again.
func (ex *Executor) abandon(reply flight.Reply, right lease.Lease, why string) error {
	command := abandonReply(reply, why)
	answer, err := ex.cfg.Ledger.Propose(ex.asking.Context(), command)
	ex.cfg.Events.Note(command.Key, answer.Events)
	if err == nil {
		right.Release()
		return nil
	}
	ex.forsake(command, right, ex.released)
	return err
}

func abandonReply(reply flight.Reply, why string) *flight.Abandon {
	return &flight.Abandon{Key: reply.Flight.Key, Generation: reply.Flight.Generation, Token: reply.Token, Error: why}
}

// trusted reports whether the trip's claim may be used. A session that was not renewed in time is asked to do so first:
// the machine may have been suspended, and only etcd knows whether for too long.
func (ex *Executor) trusted(t *trip) bool {
	if t.right.Trust() <= 0 {
		_, _ = ex.session.Renew(ex.asking.Context())
	}
	return t.right.Trust() > 0
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

// insistOn insists on an Abandon, and tells what came of it.
func (ex *Executor) insistOn(ctx context.Context, c *flight.Abandon) (flight.Reply, error) {
	reply, err := ex.insist(ctx, c)
	ex.cfg.Events.Note(c.Key, reply.Events)
	return reply, err
}

// background runs f for at most so long, and then, also when there is no time left for f, finally. Close waits for both.
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

// letGo gives up the trip's claim, unless another goroutine goes on with it.
func (ex *Executor) letGo(t *trip) {
	if t.right == nil || t.left != nil {
		return
	}
	ex.cfg.Crash(beforeRelease)
	t.right.Release()
	t.right = nil
}

// settled ends a trip that need not fly, or cannot.
func (ex *Executor) settled(t *trip, f *flight.Flight, err error) (effect.Result, error) {
	t.sees(f)
	switch {
	case err == nil:
		return ex.answer(f, &t.call, effect.Joined)
	case t.interest.Err() != nil:
		return effect.Result{}, context.Cause(&t.interest)
	}
	return effect.Result{}, ex.unavailable(t.call.Key, err)
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
