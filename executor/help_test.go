package executor_test

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease"
)

// bubble runs a test with its own flightd in virtual time.
func bubble(t *testing.T, run func(t *testing.T, fd *flightdtest.Flightd)) {
	t.Helper()
	bubbleWith(t, flightdtest.Options{}, run)
}

func bubbleWith(t *testing.T, o flightdtest.Options, run func(t *testing.T, fd *flightdtest.Flightd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, flightdtest.Open(t, o)) })
}

func keyOf(id string) flight.Key { return flight.MustKey("billing/charge/" + id) }

// callOf returns a call with a JSON input and a policy.
func callOf(id, input string, p flight.Policy) effect.Call {
	fp, err := flight.FingerprintJSON([]byte(input), nil)
	if err != nil {
		panic(err)
	}
	return effect.Call{Key: keyOf(id), Submission: flight.Submission{
		Fingerprint: fp, Input: flight.NewBlob("application/json", []byte(input), flight.MaxInput), Policy: p,
	}}
}

// countingHandler counts its calls and succeeds.
type countingHandler struct{ n atomic.Int32 }

func (c *countingHandler) handle(context.Context, *effect.Attempt) (effect.Answer, error) {
	c.n.Add(1)
	return effect.Answer{ExternalID: "ch_1", ContentType: "text/plain", Body: []byte("paid")}, nil
}

// blockingHandler is a handler that signals its start, and returns when the test sends its result.
type blockingHandler struct {
	started chan struct{}
	result  chan error
}

func newBlockingHandler() *blockingHandler {
	return &blockingHandler{started: make(chan struct{}), result: make(chan error)}
}

func (h *blockingHandler) handle(context.Context, *effect.Attempt) (effect.Answer, error) {
	h.started <- struct{}{}
	return effect.Answer{ExternalID: "ch_1", Body: []byte("paid")}, <-h.result
}

// doResult is the result of a Do.
type doResult struct {
	result effect.Result
	err    error
}

// doInBackground runs Do on a goroutine.
func doInBackground(ctx context.Context, d effect.Doer, call effect.Call, h effect.Handler) <-chan doResult {
	done := make(chan doResult, 1)
	go func() {
		result, err := d.Do(ctx, call, h)
		done <- doResult{result, err}
	}()
	return done
}

func unreachableHandler(t *testing.T) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("this handler must not run")
		return effect.Answer{}, nil
	}
}

// failingHandler returns a handler that fails with these errors in turn, and then succeeds.
func failingHandler(errs ...error) (effect.Handler, *atomic.Int32) {
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

// foreignAttempt is an attempt that another process has opened.
type foreignAttempt struct {
	t       *testing.T
	fd      *flightdtest.Flightd
	open    *flight.Open
	reply   flight.Reply
	session lease.Session
}

// openForeignAttempt opens an attempt of the call under a session that lives for ten minutes.
func openForeignAttempt(t *testing.T, fd *flightdtest.Flightd, call effect.Call) *foreignAttempt {
	t.Helper()
	session, err := fd.Leases.NewSession(t.Context(), lease.Spec{TTL: lease.MaxTTL})
	require.NoError(t, err)
	e := &foreignAttempt{t: t, fd: fd, session: session, open: &flight.Open{Key: call.Key, Submission: call.Submission, Session: session.Ref(),
		NotAfter: fd.Ledger.Now().Add(10 * time.Second), StoreEpoch: fd.Ledger.Header().StoreEpoch}}
	_, _ = rand.Read(e.open.Nonce[:])
	e.reply, err = fd.Ledger.Propose(t.Context(), e.open)
	require.NoError(t, err)
	require.Equal(t, flight.DecisionProceed, e.reply.Decision)
	return e
}

// abandon abandons the attempt.
func (a *foreignAttempt) abandon() {
	a.t.Helper()
	reply, err := a.fd.Ledger.Propose(a.t.Context(), &flight.Abandon{Key: a.open.Key, Nonce: a.open.Nonce, NotAfter: a.open.NotAfter, StoreEpoch: a.open.StoreEpoch})
	require.NoError(a.t, err)
	require.Equal(a.t, flight.DecisionAccepted, reply.Decision)
}

// report reports an outcome of the attempt.
func (a *foreignAttempt) report(o flight.Outcome, externalID string) flight.Reply {
	a.t.Helper()
	f := a.reply.Flight
	reply, err := a.fd.Ledger.Report(a.t.Context(), &flight.Report{Key: f.Key, Generation: f.Generation, Token: a.reply.Token, Outcome: o, ExternalID: externalID})
	require.NoError(a.t, err)
	return reply
}
