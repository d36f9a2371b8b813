package caller

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// lookTimeout bounds a look-up whose flight declares no attempt time-out.
const lookTimeout = 30 * time.Second

// Look is a look-up that is to be called.
type Look struct {
	Up   effect.LookUp
	Doer any         // who calls it
	Spec effect.Spec // of the attempt in doubt; its context is filled in
	// Timeout ends its context; 0: 30 s.
	Timeout time.Duration
	// HungAfter is how long after that it is believed to return.
	HungAfter time.Duration
	// Go starts it on a goroutine that somebody waits for.
	Go func(func())
}

// NoLookUp is the cause of the doubt of a caller that was sent to look and brings no look-up.
const NoLookUp = "an effect of unknown outcome must be looked up at the provider, and this caller brings no look-up"

// MayLook reports whether a doubt that others share is none for this caller: who flew for them brought no look-up, and this
// one does.
func MayLook(err error, flew, own effect.LookUp) bool {
	var doubt *effect.InDoubt
	return flew == nil && own != nil && errors.As(err, &doubt) && doubt.Cause == NoLookUp
}

// finding is what a look-up found out.
type finding struct {
	verb   flight.Verb
	answer effect.Answer
}

// Ask calls the look-up. Whatever goes wrong with it means that it could not find out: an error, a panic, a verb that is
// none, or that it does not return.
func (l Look) Ask(ctx context.Context) (flight.Verb, effect.Answer) {
	if l.Timeout <= 0 {
		l.Timeout = lookTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	ctx = Mark(ctx, l.Doer, l.Spec.Key)
	l.Spec.Context = ctx
	at, found := effect.NewAttempt(l.Spec), make(chan finding, 1)
	l.Go(func() {
		defer cancel()
		var it finding
		defer func() { // also when the look-up ends this goroutine
			if recover() != nil {
				it = finding{}
			}
			found <- it
		}()
		it = l.once(ctx, at)
	})
	hung := time.NewTimer(l.Timeout + l.HungAfter)
	defer hung.Stop()
	select {
	case it := <-found:
		return it.verb, it.answer
	case <-hung.C:
		return flight.NoVerb, effect.Answer{}
	}
}

func (l Look) once(ctx context.Context, at *effect.Attempt) finding {
	verb, answer, err := l.Up(ctx, at)
	switch {
	case err == nil && verb == flight.Happened:
		answer.Body = bytes.Clone(answer.Body) // its verdict may have to be brought again, and the bytes are the look-up's
		return finding{verb, answer}
	case err == nil && verb == flight.DidNotHappen:
		return finding{verb: verb}
	}
	return finding{}
}
