package effect

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// Attempt is one try at an effect, as its handler sees it.
type Attempt struct {
	spec     Spec
	marks    atomic.Uint32
	standing atomic.Int32                 // requests through Transport that may have changed something, for all that is known
	unsure   atomic.Int32                 // those of them that have ended with unknown outcome
	blind    atomic.Int32                 // calls of Sending that returned nil: of what they sent nothing is known here
	sent     atomic.Int32                 // unsafe requests through Transport of which a byte was written
	first    atomic.Pointer[clock.Moment] // when the first send began that may have changed something; kept where there is a Window
	moved    sync.Map                     // their answers that were redirects, by *http.Response: following one is no second send
}

// Spec is what an attempt carries; whoever runs handlers fills it in.
type Spec struct {
	Key            flight.Key
	Number         uint32
	IdempotencyKey string
	FencingToken   string
	Input          flight.Blob            // as first submitted, with its data: send this, not your own
	Recovery       flight.Recovery        // what happens about an unknown outcome
	Window         time.Duration          // how long after the first send another one may be started, under resend: the provider knows the key so long; 0: no bound
	Previous       *flight.Attempt        // the attempt before, nil for a first one
	LeaseLost      func() <-chan struct{} // closed when the right to start effects is lost
	MayStart       func() error           // nil while an effect may still be started
	Context        context.Context        // the attempt's own
}

const (
	markWatched uint32 = 1 << iota // Transport or Sending is in use: silence means that nothing left
	markSent                       // the effect may have left
	markOver                       // it was classified: nothing may leave any more
)

// NewAttempt makes the attempt that spec describes.
func NewAttempt(spec Spec) *Attempt { return &Attempt{spec: spec} }

// Key is the flight's key.
func (a *Attempt) Key() flight.Key { return a.spec.Key }

// Number is the attempt's number: it rises by one with every attempt of the key.
func (a *Attempt) Number() uint32 { return a.spec.Number }

// IdempotencyKey is the key to pass to the provider: the same for every attempt of this intent.
func (a *Attempt) IdempotencyKey() string { return a.spec.IdempotencyKey }

// FencingToken is an opaque string that sorts by age. A store of your own that remembers the greatest one it saw, and
// refuses smaller ones, shuts out every attempt that is over. In a look-up it is that of the attempt in doubt; through a
// client a look-up has none, because a server gives a token only to whoever may act and report under it.
func (a *Attempt) FencingToken() string { return a.spec.FencingToken }

// Traceparent says which trace the call belongs to, for requests that do not go through Transport; "" when it is none's.
func (a *Attempt) Traceparent() string {
	if a.spec.Context == nil {
		return ""
	}
	return Traceparent(a.spec.Context)
}

// Input is the input as it was first submitted; a resend must send exactly this. The bytes are the asker's own: what it
// does to them is not sent by the attempts that follow.
func (a *Attempt) Input() []byte { return bytes.Clone(a.spec.Input.Data) }

// Previous is the attempt before this one; nil for the first.
func (a *Attempt) Previous() *flight.Attempt { return a.spec.Previous }

// LeaseLost is closed when the right to start an effect is lost. One that has started is left to finish. It is nil where
// there is no right that could be lost.
func (a *Attempt) LeaseLost() <-chan struct{} {
	if a.spec.LeaseLost == nil {
		return nil
	}
	return a.spec.LeaseLost()
}

// Watch says that Transport or Sending will note the effect's start: until then every error means not_done.
func (a *Attempt) Watch() { a.marks.Or(markWatched) }

// Sending is called right before the effect leaves. It returns an error, and the effect must not be started, when the
// right to start it is lost. An error that the handler returns before this call means not_done, one after it unknown;
// so does the error of a second call that is refused after a first one was not. It is refused, too, when the attempt is
// over: what a handler left running when it returned starts nothing.
//
// Unless the recovery is resend, it is refused after a request through Transport whose outcome is unknown. Only the handler
// knows the outcome of what it sends without Transport: it must not send again where that is unknown.
func (a *Attempt) Sending() error {
	a.Watch()
	if err := a.mayStart(); err != nil {
		return err
	}
	if err := a.maySendMore(); err != nil {
		return err
	}
	if err := a.start(); err != nil {
		return err
	}
	a.blind.Add(1)
	return nil
}

// maySendMore refuses another effect where an earlier one may have happened.
func (a *Attempt) maySendMore() error {
	if a.unsure.Load() > 0 && a.spec.Recovery != flight.Resend {
		return NotDone(&keptBackError{errUnsure})
	}
	return nil
}

// errUnsure keeps back a second effect.
var errUnsure = errors.New("an earlier request of this attempt is of unknown outcome, and its recovery is not resend: nothing more is sent")

// start notes that the effect may have left, unless the attempt is over.
func (a *Attempt) start() error {
	for {
		marks := a.marks.Load()
		if marks&markOver != 0 {
			return NotDone(&keptBackError{errOver})
		}
		if a.marks.CompareAndSwap(marks, marks|markSent) {
			if a.spec.Window > 0 {
				now := clock.Now()
				a.first.CompareAndSwap(nil, &now)
			}
			return nil
		}
	}
}

// errForgotten keeps back a repeat that the provider may not recognise.
var errForgotten = errors.New("the provider may have forgotten the key of what was sent before: nothing more is sent")

// errOver keeps back what a handler left running.
var errOver = errors.New("the attempt is over: the effect must not be started")

// others reports whether more was sent, or may have been, than the one request that an answer is about.
func (a *Attempt) others() bool {
	return a.standing.Load() > 0 || a.blind.Load() > 0 && a.blind.Load()+a.sent.Load() > 1
}

// Sent reports whether the effect may have left.
func (a *Attempt) Sent() bool { return a.marks.Load()&^markOver != markWatched }

// end lets nothing leave from now on that has not left yet, and answers whether anything may have.
func (a *Attempt) end() (sent bool) { return a.marks.Or(markOver)&^markOver != markWatched }
