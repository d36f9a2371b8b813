package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// flightd takes the place of `flightd dev`: the real interface over a ledger in memory.
func flightd() (address string, stop func()) {
	tb := &exampleTB{}
	server := httptest.NewServer(httpapi.New(httpapitest.New(tb).Config()))
	return server.URL, func() { server.Close(); tb.cleanUp() }
}

// exampleTB is the testing.TB of an example.
type exampleTB struct {
	testing.TB
	ends []func()
}

func (tb *exampleTB) Helper()                   {}
func (tb *exampleTB) Cleanup(f func())          { tb.ends = append(tb.ends, f) }
func (tb *exampleTB) Fatalf(s string, a ...any) { log.Fatalf(s, a...) }
func (tb *exampleTB) Errorf(s string, a ...any) { log.Printf(s, a...) }

func (tb *exampleTB) cleanUp() {
	for _, end := range slices.Backward(tb.ends) {
		end()
	}
}

// connected is a client of a flightd of its own. Your program keeps the default spool.
func connected() (*client.Client, func()) {
	address, stop := flightd()
	c, err := client.Connect(context.Background(), address, client.WithoutSpool())
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		_ = c.Close(context.Background())
		stop()
	}
}

// Charge is the provider's answer.
type Charge struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// ExternalID goes into the receipt.
func (c Charge) ExternalID() string { return c.ID }

// Order is the input of a charge.
type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// gateway is a payment provider; it counts how often it really charged.
type gateway struct {
	charged int
	fail    error // given once, after the card was charged
}

func (g *gateway) Charge(_ context.Context, o Order, idempotencyKey string) (Charge, error) {
	g.charged++
	err := g.fail
	g.fail = nil
	return Charge{ID: fmt.Sprintf("ch_%d", g.charged), Cents: o.Cents}, err
}

// The whole story: the effect runs once, and every duplicate gets its receipt.
func ExampleDo() {
	address, stop := flightd()
	defer stop()
	ctx, provider := context.Background(), new(gateway)

	ex, err := client.Connect(ctx, address, client.WithoutSpool()) // keep the spool, unless you show an example
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = ex.Close(ctx) }()

	order := Order{ID: "order-42", Cents: 4200}
	for range 2 {
		charge, err := client.Do(ctx, ex, client.Key("charge", order.ID), order,
			func(ctx context.Context, at client.Attempt) (Charge, error) {
				return provider.Charge(ctx, order, at.IdempotencyKey())
			})
		fmt.Println(charge.ID, err)
	}
	fmt.Println("charged", provider.charged, "time")
	// Output:
	// ch_1 <nil>
	// ch_1 <nil>
	// charged 1 time
}

// An error does not say whether the effect happened. Sending marks the moment from which it may have happened. A
// failure before it leaves the key ready; one after it is held for a person, unless you choose another policy.
func ExampleDo_doubt() {
	ex, stop := connected()
	defer stop()
	ctx, provider := context.Background(), &gateway{fail: errors.New("connection reset")}
	order := Order{ID: "order-43", Cents: 4200}
	ready := false

	for range 3 {
		_, err := client.Do(ctx, ex, client.Key("charge", order.ID), order,
			func(ctx context.Context, at client.Attempt) (Charge, error) {
				at.Watch()
				if !ready {
					return Charge{}, errors.New("the card is not on file yet")
				}
				if err := at.Sending(); err != nil { // the right to start is lost: nothing was sent
					return Charge{}, err
				}
				return provider.Charge(ctx, order, at.IdempotencyKey())
			})
		var unsettled *client.Unsettled
		var doubt *client.InDoubt
		switch {
		case errors.As(err, &unsettled):
			fmt.Println("nothing happened, try again:", unsettled.Err)
			ready = true
		case errors.As(err, &doubt):
			fmt.Println("nobody may act before somebody has looked")
		}
	}
	fmt.Println("charged", provider.charged, "time")
	// Output:
	// nothing happened, try again: the card is not on file yet
	// nobody may act before somebody has looked
	// nobody may act before somebody has looked
	// charged 1 time
}

// With a provider that can be asked, no person is needed: the look-up resolves the doubt of an attempt.
func ExampleWithLookUp() {
	ex, stop := connected()
	defer stop()
	ctx, provider := context.Background(), &gateway{fail: errors.New("connection reset")}
	order := Order{ID: "order-44", Cents: 4200}

	ask := func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
		if provider.charged == 0 {
			return flight.FindingNotHappened, effect.Answer{}, nil
		}
		answer, err := effect.JSON("ch_1", Charge{ID: "ch_1", Cents: order.Cents})
		return flight.FindingHappened, answer, err
	}
	charge, err := client.Do(ctx, ex, client.Key("charge", order.ID), order,
		func(ctx context.Context, at client.Attempt) (Charge, error) {
			return provider.Charge(ctx, order, at.IdempotencyKey())
		},
		client.WithPolicy(flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Millisecond}), client.WithLookUp(ask))
	fmt.Println(charge.ID, err)
	// Output: ch_1 <nil>
}

// A rejection by the provider is a receipt, too: every caller gets it, and the provider is not called again.
func ExampleRefused() {
	ex, stop := connected()
	defer stop()
	asked := 0
	for range 2 {
		_, err := client.Do(context.Background(), ex, client.Key("charge", "order-45"), nil,
			func(context.Context, client.Attempt) (Charge, error) {
				asked++
				return Charge{}, client.Refused(errors.New("card declined"))
			})
		var declined *client.Declined
		if errors.As(err, &declined) {
			fmt.Printf("%s: %s\n", declined.Result.Source, declined.Result.Answer.Body)
		}
	}
	fmt.Println("asked", asked, "time")
	// Output:
	// executed: card declined
	// replayed: card declined
	// asked 1 time
}

// The same key with another input is a mistake, and never a replay.
func ExampleConflict() {
	ex, stop := connected()
	defer stop()
	for _, cents := range []int{4200, 9900} {
		_, err := client.Do(context.Background(), ex, client.Key("charge", "order-46"), Order{ID: "order-46", Cents: cents},
			func(context.Context, client.Attempt) (Charge, error) { return Charge{ID: "ch_1"}, nil })
		var conflict *client.Conflict
		if errors.As(err, &conflict) {
			fmt.Println(conflict.Fields)
		}
	}
	// Output: [/cents]
}

// Over HTTP the attempt's own transport does the rest: it adds the idempotency key and the fencing token, notes the
// first byte that is written, and never sends a request twice; FromHTTP reads what the answer means.
func ExampleFromHTTP() {
	ex, stop := connected()
	defer stop()
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Printf("asked for %s, with a key: %t\n", body, r.Header.Get("Idempotency-Key") != "")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"ch_1"}`)
	}))
	defer provider.Close()

	call := effect.Call{Key: flight.MustKey("default/charge/order-47"), Submission: flight.Submission{
		Input: flight.NewBlob("application/json", []byte(`{"cents":4200}`), flight.MaxInput),
	}}
	result, err := ex.Do(context.Background(), call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL, strings.NewReader(string(at.Input())))
		if err != nil {
			return effect.Answer{}, err
		}
		return client.FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(request))
	})
	fmt.Printf("%s %s %v\n", result.Source, result.Answer.Body, err)
	// Output:
	// asked for {"cents":4200}, with a key: true
	// executed {"id":"ch_1"} <nil>
}

// The decision of a person about a doubt is returned to every caller.
func ExampleClient_Resolve() {
	ex, stop := connected()
	defer stop()
	ctx := context.Background()
	charge := func() error {
		_, err := client.Do(ctx, ex, client.Key("charge", "order-48"), nil,
			func(context.Context, client.Attempt) (Charge, error) { return Charge{}, errors.New("time-out") })
		return err
	}

	var doubt *client.InDoubt
	if errors.As(charge(), &doubt) {
		decision := client.ResolveRequest{Result: "happened", Reason: "it is on the bank statement"}
		decision.ExternalID, decision.JSON = "ch_9", []byte(`{"id":"ch_9"}`)
		f, err := ex.Resolve(ctx, doubt.Key.FlightID(), doubt.Version.String(), decision)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(f.State, f.Receipt.ExternalID)
	}
	fmt.Println(charge())
	// Output:
	// succeeded ch_9
	// <nil>
}
