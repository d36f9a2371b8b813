package executor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease"
)

func noEffect(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, nil }

// newCalls returns n calls with new keys.
func newCalls(n int, p flight.Policy) []effect.Call {
	calls := make([]effect.Call, n)
	for i := range calls {
		calls[i] = callOf(fmt.Sprint(i), `{"amount":42}`, p)
	}
	return calls
}

// BenchmarkDo measures a Do with an empty effect and a new key: over stubs that do nothing, and over flightdtest, whose
// ledger applies the rules and whose leases batch like the real ones.
func BenchmarkDo(b *testing.B) {
	b.Run("alone", func(b *testing.B) {
		ex, err := executor.New(b.Context(), executor.Config{Ledger: stubLedger{}, Reader: stubLedger{}, Leases: stubLeases{}})
		require.NoError(b, err)
		benchDo(b, ex, flight.Policy{})
	})
	b.Run("alone, with a time-out", func(b *testing.B) {
		ex, err := executor.New(b.Context(), executor.Config{Ledger: stubLedger{}, Reader: stubLedger{}, Leases: stubLeases{}})
		require.NoError(b, err)
		benchDo(b, ex, flight.Policy{AttemptTimeout: 30 * time.Second})
	})
	b.Run("double", func(b *testing.B) {
		benchDo(b, flightdtest.Open(b, flightdtest.Options{NoSweeper: true}), flight.Policy{})
	})
}

func benchDo(b *testing.B, d effect.Doer, p flight.Policy) {
	calls := newCalls(b.N, p)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		_, err := d.Do(ctx, calls[i], noEffect)
		require.NoError(b, err)
	}
}

// BenchmarkReplay measures a Do of a random key of 100,000 that have receipts.
func BenchmarkReplay(b *testing.B) {
	fd := flightdtest.Open(b, flightdtest.Options{NoSweeper: true})
	calls := newCalls(100_000, flight.Policy{})
	fillLedger(b, fd.Ledger, calls)
	for name, parallel := range map[string]bool{"one caller": false, "all cores": true} {
		b.Run(name, func(b *testing.B) {
			replay := func() {
				if _, err := fd.Do(b.Context(), calls[rand.IntN(len(calls))], noEffect); err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			if parallel {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						replay()
					}
				})
				return
			}
			for b.Loop() {
				replay()
			}
		})
	}
}

func fillLedger(b *testing.B, l executor.Ledger, calls []effect.Call) {
	for _, call := range calls {
		opened, err := l.Propose(b.Context(), &flight.Open{Key: call.Key, Submission: call.Submission, Nonce: flight.Nonce{1},
			Session: flight.Session{Epoch: 1, Revision: 1, ID: "s"}, NotAfter: flight.Time(time.Now().Add(10 * time.Second).UnixMilli()), StoreEpoch: 1})
		require.NoError(b, err)
		require.Equal(b, flight.DecisionProceed, opened.Decision)
		_, err = l.Report(b.Context(), &flight.Report{Key: call.Key, Generation: 1, Token: opened.Token, Outcome: flight.OutcomeSucceeded,
			Body: flight.NewBlob("application/json", []byte(`{"id":"ch_1"}`), flight.MaxReceiptBody)})
		require.NoError(b, err)
	}
}

// stubLedger answers every open with an attempt and every report with a receipt.
type stubLedger struct{}

func (stubLedger) Propose(_ context.Context, c flight.Command) (flight.Reply, error) {
	open := c.(*flight.Open)
	f := &flight.Flight{ID: open.Key.FlightID(), Key: open.Key, Generation: 1, State: flight.StateRunning, Policy: open.Submission.Policy,
		Fingerprint: open.Submission.Fingerprint, Input: open.Submission.Input, Attempts: []flight.Attempt{{Number: 1, Session: open.Session}}}
	return flight.Reply{Decision: flight.DecisionProceed, Flight: f, Token: f.Attempts[0].Token()}, nil
}

func (stubLedger) Report(_ context.Context, r *flight.Report) (flight.Reply, error) {
	f := &flight.Flight{Key: r.Key, State: flight.StateSucceeded, Receipt: &flight.Receipt{Outcome: flight.OutcomeSucceeded, Body: r.Body}}
	return flight.Reply{Decision: flight.DecisionAccepted, Flight: f}, nil
}

func (stubLedger) Flight(flight.ID) (*flight.Flight, error) { return nil, nil }
func (stubLedger) Wait(ctx context.Context, _ flight.ID, _ flight.Version) (*flight.Flight, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (stubLedger) Header() flight.Header {
	return flight.Header{Deployment: "d", Secret: []byte("s"), StoreEpoch: 1}
}
func (stubLedger) Now() flight.Time { return 1 }

func (stubLedger) Overdue(int) []flight.ID                    { return nil }
func (stubLedger) Input(*flight.Flight) ([]byte, error)       { return nil, nil }
func (stubLedger) ReceiptBody(*flight.Flight) ([]byte, error) { return nil, nil }

// stubLeases grants every claim at once.
type stubLeases struct{ lease.Service }

func (stubLeases) NewSession(context.Context, lease.Spec) (lease.Session, error) {
	return &stubSession{}, nil
}

type stubSession struct{ lease.Session }

func (*stubSession) Reserve(context.Context, flight.Key, flight.Nonce) (lease.Lease, error) {
	return stubLease{}, nil
}

type stubLease struct{}

func (stubLease) Session() flight.Session       { return flight.Session{Epoch: 1, Revision: 1, ID: "s"} }
func (stubLease) Context() context.Context      { return context.Background() }
func (stubLease) Trust() time.Duration          { return time.Second }
func (stubLease) Claim(context.Context) error   { return nil }
func (stubLease) Replace(context.Context) error { return nil }
func (stubLease) Release()                      {}
