package flightdtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// mustNotRun is a handler that must not run.
func mustNotRun(t *testing.T) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("a second effect")
		return effect.Answer{}, nil
	}
}
