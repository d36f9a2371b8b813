package executor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// bubble runs a test with a flightd of its own in virtual time.
func bubble(t *testing.T, run func(t *testing.T, fd *flightdtest.Flightd)) {
	t.Helper()
	bubbleWith(t, flightdtest.Options{}, run)
}

func bubbleWith(t *testing.T, o flightdtest.Options, run func(t *testing.T, fd *flightdtest.Flightd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, flightdtest.Open(t, o)) })
}

func keyOf(id string) flight.Key { return flight.MustKey("billing/charge/" + id) }

// callOf is a call with a JSON input, under that policy.
func callOf(id, input string, p flight.Policy) effect.Call {
	fp, err := flight.FingerprintJSON([]byte(input), nil)
	if err != nil {
		panic(err)
	}
	return effect.Call{Key: keyOf(id), Submission: flight.Submission{
		Fingerprint: fp, Input: flight.NewBlob("application/json", []byte(input), flight.MaxInput), Policy: p,
	}}
}

// counted counts its calls and succeeds.
type counted struct{ n atomic.Int32 }

func (c *counted) handle(context.Context, *effect.Attempt) (effect.Answer, error) {
	c.n.Add(1)
	return effect.Answer{ExternalID: "ch_1", ContentType: "text/plain", Body: []byte("paid")}, nil
}

// gate is a handler that says when it is in, and ends when it is let out.
type gate struct {
	in  chan struct{}
	out chan error
}

func newGate() *gate { return &gate{in: make(chan struct{}), out: make(chan error)} }

func (g *gate) handle(context.Context, *effect.Attempt) (effect.Answer, error) {
	g.in <- struct{}{}
	return effect.Answer{ExternalID: "ch_1", Body: []byte("paid")}, <-g.out
}

// told is what a Do gave.
type told struct {
	result effect.Result
	err    error
}

// do runs Do in the background.
func do(ctx context.Context, d effect.Doer, call effect.Call, h effect.Handler) <-chan told {
	done := make(chan told, 1)
	go func() {
		result, err := d.Do(ctx, call, h)
		done <- told{result, err}
	}()
	return done
}

func never(t *testing.T) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("this handler must not run")
		return effect.Answer{}, nil
	}
}

// failing is a handler that gives these errors in turn, and then succeeds.
func failing(errs ...error) (effect.Handler, *atomic.Int32) {
	n := new(atomic.Int32)
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		if i := int(n.Add(1)); i <= len(errs) {
			return effect.Answer{}, errs[i-1]
		}
		return effect.Answer{ExternalID: "ch_1", Body: []byte("paid")}, nil
	}, n
}

// requireAs is errors.As with the error in the message.
func requireAs[E error](t *testing.T, err error) E {
	t.Helper()
	var as E
	require.ErrorAs(t, err, &as)
	return as
}
