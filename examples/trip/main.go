// Command trip books trips at four providers, each a process of its own: a hotel, an airline, a card and a mail service. Answers of the
// airline and of the mail service are lost, and one charge is declined. At the end each provider prints its book.
//
//	CGO_ENABLED=0 go run -trimpath ./examples/trip
//
// It runs a flightd dev of its own; set FLIGHTD_ADDR to use yours. There the same trips are the same runs: a second time nothing is booked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/client/saga"
	"github.com/flightd/flightd/examples/internal/dev"
)

// booking is the input of a trip.
type booking struct {
	Trip  string `json:"trip"`
	Cents int    `json:"cents"`
}

// confirmation is the answer of each provider.
type confirmation struct {
	ID string `json:"id"`
}

// defineTrip defines the saga. urls are those of the providers, by name.
func defineTrip(urls map[string]string) *saga.Saga[booking] {
	book := func(provider, verb string) func(context.Context, saga.Attempt, booking) (confirmation, error) {
		return func(ctx context.Context, at saga.Attempt, in booking) (confirmation, error) {
			return send(ctx, at, fmt.Sprintf("%s/%s/%s?cents=%d", urls[provider], verb, in.Trip, in.Cents))
		}
	}
	cancel := func(provider string) saga.StepOption {
		return saga.Undo(func(ctx context.Context, at saga.Attempt, _ booking, booked *confirmation) error {
			_, err := send(ctx, at, urls[provider]+"/cancel/"+booked.ID)
			return err
		}, saga.UndoResend(24*time.Hour), saga.NothingToUndo(http.StatusNotFound, http.StatusGone))
	}
	remembers := saga.Resend(24 * time.Hour) // for so long each provider knows our key: a request may be sent again
	trip := saga.New[booking]("trip", saga.Deadline(48*time.Hour))
	hotel := saga.Step(trip, "hotel", book("hotel", "book"), remembers, cancel("hotel"))
	seat := saga.Step(trip, "seat", book("airline", "book"), remembers, cancel("airline"), saga.After(hotel))
	paid := saga.Step(trip, "pay", book("card", "charge"), remembers, saga.After(hotel, seat), saga.Pivot()) // the money does not come back
	saga.Step(trip, "voucher", book("mail", "send"), remembers, saga.After(paid), saga.RetryFor(72*time.Hour))
	return trip
}

// send sends a request under the attempt's key. FromHTTP reads the answer: 2xx happened, 402 is refused, and a lost answer is unknown.
func send(ctx context.Context, at saga.Attempt, url string) (answer confirmation, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return answer, client.NotDone(err)
	}
	req.Header.Set("Idempotency-Key", at.IdempotencyKey())
	got, err := client.FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(req))
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(got.Body, &answer)
}

func main() {
	var err error
	if len(os.Args) == 3 && os.Args[1] == "provider" {
		err = serveProvider(os.Args[2])
	} else {
		err = run(context.Background(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	names := []string{"hotel", "airline", "card", "mail"}
	urls, end, err := startProviders(names...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	c, stop, err := dev.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	trip := defineTrip(urls)
	if err := trip.Define(ctx, c); err != nil {
		return err
	}
	worker, worked := c.Worker(), make(chan error, 1)
	worker.Serve(trip)
	working, enough := context.WithCancel(ctx)
	go func() { worked <- worker.Run(working) }()
	for _, b := range []booking{{"b-1", 19_99}, {"b-2", 2_000_00}} {
		err = errors.Join(err, bookTrip(ctx, c, trip, b, out))
	}
	for _, name := range names {
		err = errors.Join(err, printBook(out, urls[name]))
	}
	enough()
	return errors.Join(err, <-worked)
}

// bookTrip starts a trip, and waits until everything has happened or is undone. If this program dies, another start of it goes on.
func bookTrip(ctx context.Context, c *client.Client, trip *saga.Saga[booking], b booking, out io.Writer) error {
	started, err := trip.Start(ctx, c, b.Trip, b)
	if err != nil {
		return err
	}
	over, err := started.Wait(ctx)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s: %s\n", b.Trip, strings.TrimSuffix(over.State+": "+over.Cause, ": "))
	}
	return err
}
