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

// Attempt is one attempt at an effect, as its handler sees it. Its methods may be called concurrently.
type Attempt struct {
	spec            Spec
	state           atomic.Uint32
	possibleEffects atomic.Int32                  // unsafe requests through Transport that may have changed something
	unknownSends    atomic.Int32                  // the ones that ended with unknown outcome
	directSends     atomic.Int32                  // calls of Sending that returned nil; their requests are not observed here
	transportSends  atomic.Int32                  // unsafe requests through Transport with at least one written byte
	firstSend       atomic.Pointer[clock.Instant] // start of the first send that may have changed something; set only with a Window
	suspended       atomic.Pointer[Suspended]     // set by Suspend
	redirects       sync.Map                      // redirect answers, by *http.Response: following one is not a second send
}

// Spec describes an attempt. The runner fills it in.
type Spec struct {
	Key            flight.Key
	Number         uint32
	IdempotencyKey string
	FencingToken   string
	Input          flight.Blob            // as first submitted, with its data: the input to send
	Recovery       flight.Recovery        // applied after an unknown outcome
	Window         time.Duration          // under resend: how long after the first send another may start, while the provider remembers the key; 0: no bound
	Previous       *flight.Attempt        // the previous attempt; nil for the first, and in a look-up whose attempt a restore has lost
	LeaseLost      func() <-chan struct{} // closed when the right to start effects is lost
	MayStart       func() error           // nil while an effect may still be started
	Context        context.Context        // the attempt's own
	Traceparent    string                 // of the attempt's own span; "": that of the call, if it has one
	CallbackURL    string                 // where the provider reports the outcome; "": Call.Callback is not set
	// Suspend hands the attempt over to its callback, and returns the deadline; nil: Call.Callback is not set.
	Suspend func(ctx context.Context, within time.Duration) (until time.Time, err error)
}

const (
	stateWatched uint32 = 1 << iota // Transport or Sending is in use: each send is recorded
	stateSent                       // the effect may have been sent
	stateOver                       // Classify has run: no more sends
)

// NewAttempt makes an attempt.
func NewAttempt(spec Spec) *Attempt { return &Attempt{spec: spec} }

// Key returns the flight's key.
func (a *Attempt) Key() flight.Key { return a.spec.Key }

// Number returns the attempt's number. It grows by one with every attempt of the key.
func (a *Attempt) Number() uint32 { return a.spec.Number }

// IdempotencyKey returns the key to pass to the provider. It is the same for every attempt of the flight.
func (a *Attempt) IdempotencyKey() string { return a.spec.IdempotencyKey }

// FencingToken returns an opaque string that sorts by age. A store of your own that remembers the greatest token and
// rejects smaller ones keeps out every earlier attempt. In a look-up it is the token of the attempt in doubt. Through a
// client it is empty in a look-up: a server gives a token only to a caller that may act and report under it.
func (a *Attempt) FencingToken() string { return a.spec.FencingToken }

// Traceparent returns the W3C traceparent for the effect, for requests without Transport: that of the attempt's span, or else the call's, or ""
// if it has none.
func (a *Attempt) Traceparent() string {
	if a.spec.Context == nil {
		return ""
	}
	return Traceparent(a.spec.Context)
}

// Input returns a copy of the input as first submitted. A resend must send exactly these bytes.
func (a *Attempt) Input() []byte { return bytes.Clone(a.spec.Input.Data) }

// CallbackURL returns the URL at which the provider reports the outcome of this attempt, if Call.Callback is set: give it to the
// provider together with the work, then call Suspend. It is a secret. Under resend it is the same for every attempt.
func (a *Attempt) CallbackURL() string { return a.spec.CallbackURL }

// Suspend hands the attempt over to its callback, for at most the given time. The handler has started the effect, and returns the
// error of Suspend: then the process may end, and the attempt waits for its callback. After the deadline the outcome is unknown,
// and the recovery decides. From the call on the attempt sends nothing more, whether Suspend succeeds or not.
//
// The error is *Suspended if the attempt waits, or if its callback came first. After any other error the attempt may or may
// not wait. If the process dies during Suspend, the attempt waits, or ends with its session.
func (a *Attempt) Suspend(ctx context.Context, within time.Duration) error {
	if a.spec.Suspend == nil {
		return errors.New("the attempt cannot wait for a callback: the call must set Callback, and run through a client")
	}
	a.state.Or(stateOver)
	until, err := a.spec.Suspend(ctx, within)
	if err != nil {
		return err
	}
	s := &Suspended{Key: a.spec.Key, Until: until}
	a.suspended.Store(s)
	return s
}

// IsSuspended reports whether a handler's error says that this attempt was suspended. The error of another flight does not.
func (a *Attempt) IsSuspended(err error) bool {
	var s *Suspended
	return errors.As(err, &s) && s == a.suspended.Load()
}

// Previous returns the previous attempt; nil for the first, and in a look-up whose attempt a restore has lost.
func (a *Attempt) Previous() *flight.Attempt { return a.spec.Previous }

// LeaseLost returns a channel that is closed when the right to start an effect is lost; an effect that has started may
// finish. It returns nil for an attempt without a lease.
func (a *Attempt) LeaseLost() <-chan struct{} {
	if a.spec.LeaseLost == nil {
		return nil
	}
	return a.spec.LeaseLost()
}

// Watch declares that Transport or Sending will record each send. Until the first one, every error means not_done.
func (a *Attempt) Watch() { a.state.Or(stateWatched) }

// Sending must be called right before the effect is sent. When it returns an error, the effect must not be sent: the
// lease is lost, or the attempt is over. A handler's error before the first successful Sending means not_done, one
// after it unknown; the error of a later Sending means unknown, too.
//
// Unless the recovery is resend, Sending fails after a request through Transport with unknown outcome. The outcome of
// requests without Transport is known to the handler alone: after an unknown one it must not send again.
func (a *Attempt) Sending() error {
	a.Watch()
	if err := a.checkMayStart(); err != nil {
		return err
	}
	if err := a.checkEarlierSends(); err != nil {
		return err
	}
	if err := a.markSent(); err != nil {
		return err
	}
	a.directSends.Add(1)
	return nil
}

// checkEarlierSends rejects another effect when an earlier one may have happened.
func (a *Attempt) checkEarlierSends() error {
	if a.unknownSends.Load() > 0 && a.spec.Recovery != flight.RecoveryResend {
		return NotDone(&notSentError{errUnknownSend})
	}
	return nil
}

// errUnknownSend prevents a second effect.
var errUnknownSend = errors.New("not sent: an earlier request of this attempt has an unknown outcome, and its recovery is not resend")

// markSent records that the effect may have been sent, unless the attempt is over.
func (a *Attempt) markSent() error {
	for {
		marks := a.state.Load()
		if marks&stateOver != 0 {
			return NotDone(&notSentError{errAttemptOver})
		}
		if a.state.CompareAndSwap(marks, marks|stateSent) {
			if a.spec.Window > 0 {
				now := clock.Now()
				a.firstSend.CompareAndSwap(nil, &now)
			}
			return nil
		}
	}
}

// errWindowOver prevents a repeat that the provider may not recognise.
var errWindowOver = errors.New("not sent: the provider may have forgotten the idempotency key of the earlier request")

// errAttemptOver prevents sends of goroutines that a handler has left behind.
var errAttemptOver = errors.New("the attempt is over: the effect must not be started")

// hasOtherSends reports whether more than the one request of an answer was, or may have been, sent.
func (a *Attempt) hasOtherSends() bool {
	return a.possibleEffects.Load() > 0 || a.directSends.Load() > 0 && a.directSends.Load()+a.transportSends.Load() > 1
}

// Sent reports whether the effect may have been sent.
func (a *Attempt) Sent() bool { return a.state.Load()&^stateOver != stateWatched }

// markOver ends all sends, and reports whether the effect may have been sent before.
func (a *Attempt) markOver() (sent bool) { return a.state.Or(stateOver)&^stateOver != stateWatched }
