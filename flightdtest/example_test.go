package flightdtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// crm is the provider of this example. It stores the idempotency keys of its requests.
type crm struct {
	tickets map[string]string
	fail    error // returned once, after the ticket was created
}

func newCRM() *crm { return &crm{tickets: map[string]string{}} }

func (c *crm) CreateTicket(idempotencyKey, subject string) (string, error) {
	if id, known := c.tickets[idempotencyKey]; known {
		return id, nil
	}
	id := fmt.Sprintf("T-%d: %s", len(c.tickets)+1, subject)
	c.tickets[idempotencyKey] = id
	err := c.fail
	c.fail = nil
	return id, err
}

// openTicket is the code under test: in production it gets the executor. A client, too, would replay its receipts, but
// takes only inputs that are JSON, and leaves retries to its caller.
func openTicket(ctx context.Context, flightd effect.Doer, service *crm, request, subject string) (effect.Result, error) {
	call := effect.Call{
		Key: flight.MustKey("support/create-ticket/" + request),
		Submission: flight.Submission{
			Input:  flight.NewBlob("text/plain", []byte(subject), flight.MaxInput),
			Policy: flight.Policy{Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: time.Second}},
		},
	}
	return flightd.Do(ctx, call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		id, err := service.CreateTicket(at.IdempotencyKey(), string(at.Input()))
		return effect.Answer{ExternalID: id}, err
	})
}

// console takes the place of your test's *testing.T.
type console struct {
	testing.TB
	cleanups []func()
}

func (*console) Helper()            {}
func (c *console) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }
func (*console) Errorf(format string, args ...any) {
	fmt.Printf(format, args...)
}

func (c *console) end() {
	for i := len(c.cleanups) - 1; i >= 0; i-- {
		c.cleanups[i]()
	}
}

// A duplicate request gets the first one's answer, although the ledger's answer was lost.
func Example() {
	t := new(console)
	defer t.end()

	fd, service := flightdtest.New(t), newCRM()
	fd.Ledger.LoseAnswers(1)
	for range 2 {
		result, err := openTicket(context.Background(), fd, service, "req-7", "Printer on fire")
		fmt.Println(result.Source, result.Answer.ExternalID, err)
	}
	fmt.Println("tickets:", len(service.tickets))
	// Output:
	// executed T-1: Printer on fire <nil>
	// replayed T-1: Printer on fire <nil>
	// tickets: 1
}

// The service creates the ticket and drops the connection. The second attempt carries the same key, so there is one
// ticket. In the bubble the pause before the retry takes no time.
func TestConnectionLostAfterTheEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd, service := flightdtest.New(t), newCRM()
		service.fail = errors.New("connection reset")
		result, err := openTicket(t.Context(), fd, service, "req-7", "Printer on fire")
		require.NoError(t, err)
		require.EqualValues(t, 2, result.Attempt)
		require.Len(t, service.tickets, 1)
	})
}

// A person settles a doubt, and every later caller gets the receipt that was attached.
func TestInDoubt_IsResolvedByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.New(t)
		call := effect.Call{Key: flight.MustKey("billing/charge/order-42")} // no policy: hold
		_, err := fd.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, errors.New("connection reset")
		})
		var doubt *effect.InDoubt
		require.ErrorAs(t, err, &doubt)
		fd.Resolve(t, call.Key, flight.FindingHappened, "ch_1", []byte("seen in the dashboard"))
		result, err := fd.Do(t.Context(), call, mustNotRun(t))
		require.NoError(t, err)
		require.Equal(t, "ch_1", result.Answer.ExternalID)
	})
}

// mustNotRun is a handler that must not run.
func mustNotRun(t *testing.T) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("a second effect")
		return effect.Answer{}, nil
	}
}

// The process freezes during the effect; another one takes over when the lease has expired.
func TestFrozenProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd, service := flightdtest.New(t), newCRM()
		call := effect.Call{Key: flight.MustKey("support/create-ticket/req-7"),
			Submission: flight.Submission{Policy: flight.Policy{Recovery: flight.RecoveryResend}}}
		thaw, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = fd.Do(t.Context(), call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
				id, err := service.CreateTicket(at.IdempotencyKey(), "Printer on fire")
				fd.Leases.Freeze()
				<-thaw
				return effect.Answer{ExternalID: id}, err
			})
		}()
		synctest.Wait()
		other := fd.Restart(t, flightdtest.Options{})
		result, err := other.Do(t.Context(), call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			id, err := service.CreateTicket(at.IdempotencyKey(), "Printer on fire")
			return effect.Answer{ExternalID: id}, err
		})
		require.NoError(t, err)
		require.EqualValues(t, 2, result.Attempt)
		fd.Leases.Thaw()
		close(thaw)
		<-done
		require.Len(t, service.tickets, 1)
		require.Len(t, fd.Flight(call.Key).Evidence, 1, "the late report is kept as evidence")
		require.False(t, fd.Flight(call.Key).Overlap, "of the same effect")
	})
}
