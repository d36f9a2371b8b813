// Command agent is an agent that calls tools for a customer: it holds the order, asks a person, refunds the money and writes a mail. A model
// repeats itself and dies in the middle; here it asks for everything twice. A person approves one refund and rejects the other.
//
//	CGO_ENABLED=0 go run -trimpath ./examples/agent
//
// It runs a flightd dev of its own; set FLIGHTD_ADDR to use yours, where the same tickets are the same runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/client/saga"
	"github.com/flightd/flightd/examples/internal/dev"
	"github.com/flightd/flightd/flight"
)

// refund is the call that the model has made, with its arguments.
type refund struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

// book is what the shop, the bank and the mail service have done.
type book struct {
	mu    sync.Mutex // guards lines
	lines []string
}

// tool is a tool of the agent: a step that writes into the book.
func (b *book) tool(name string) func(context.Context, saga.Attempt, refund) (string, error) {
	return func(_ context.Context, at saga.Attempt, call refund) (string, error) {
		if err := at.Sending(); err != nil { // this worker may not act any more
			return "", err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, fmt.Sprintf("%s %s", name, call.Order))
		return name + "-" + call.Order, nil
	}
}

// defineTools defines the saga. No effect behind the approval happens before a person has said yes; a no undoes the hold.
func defineTools(b *book) *saga.Saga[refund] {
	tools, release := saga.New[refund]("refund"), b.tool("release")
	hold := saga.Step(tools, "hold", b.tool("hold"), saga.Undo(func(ctx context.Context, at saga.Attempt, call refund, _ *string) error {
		_, err := release(ctx, at, call)
		return err
	}))
	boss := saga.Approval(tools, "boss", saga.After(hold), saga.Expires(24*time.Hour))
	paid := saga.Step(tools, "pay", b.tool("pay"), saga.After(boss), saga.Pivot())
	saga.Step(tools, "mail", b.tool("mail"), saga.After(paid))
	return tools
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	c, stop, err := dev.Connect(ctx, client.WithActor("the agent"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	done := &book{}
	tools := defineTools(done)
	if err := tools.Define(ctx, c); err != nil {
		return err
	}
	worker, worked := c.Worker(), make(chan error, 1)
	worker.Serve(tools)
	working, enough := context.WithCancel(ctx)
	go func() { worked <- worker.Run(working) }()
	err = errors.Join(handle(ctx, c, tools, refund{"order-1", 42_00}, c.Approve, out), handle(ctx, c, tools, refund{"order-2", 4_200_00}, c.Reject, out))
	enough()
	err = errors.Join(err, <-worked)
	_, printed := fmt.Fprintf(out, "the books: %s\n", strings.Join(done.lines, ", "))
	return errors.Join(err, printed)
}

// decision is what a person says, as flightd approvals approve and reject do.
type decision func(ctx context.Context, id flight.ID, version string, d client.ApprovalDecision) (*client.Flight, error)

// handle makes the calls of the model for one order, and lets a person decide about what they ask for.
func handle(ctx context.Context, c *client.Client, tools *saga.Saga[refund], call refund, decide decision, out io.Writer) error {
	if _, err := tools.Start(ctx, c, call.Order, call); err != nil {
		return err
	}
	calls, err := tools.Start(ctx, c, call.Order, call) // the model has forgotten that it has asked: this is the same run
	if err != nil {
		return err
	}
	for {
		now, err := c.Saga(ctx, calls.Key.FlightID())
		if err != nil {
			return err
		}
		if now.Over() {
			_, err = fmt.Fprintf(out, "%s: %s\n", call.Order, strings.TrimSuffix(now.State+": "+now.Cause, ": "))
			return err
		}
		boss := now.Steps[1].Flight
		if boss == nil || boss.Approval == nil { // not yet, or decided
			time.Sleep(50 * time.Millisecond)
			continue
		}
		id, err := flight.ParseID(boss.ID)
		if err != nil {
			return err
		}
		shown, err := c.Input(ctx, id) // the call, and what the agent has done so far
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s asks for %s: %s\n", boss.Approval.RequestedBy, boss.Key, shown.Data)
		if _, err := decide(ctx, id, boss.Version, client.ApprovalDecision{Actor: "ann", Reason: "looked at the order"}); err != nil {
			return err
		}
	}
}
