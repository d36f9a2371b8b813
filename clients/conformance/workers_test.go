//go:build clients

package conformance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

// The types and the effect of the Go blocks in the guide for workers.
type (
	Order struct {
		ID, Customer string
		Cents        int
	}
	Charge struct{ ID string }
)

func pay(_ context.Context, o Order, _ string) (Charge, error) {
	return Charge{fmt.Sprint("ch_", o.Cents)}, nil
}

func submitAndWait(ctx context.Context, c *client.Client, order Order) (charge Charge, err error) {
	_, err = c.Submit(ctx, client.Key("charge", order.ID), order, client.Resend(24*time.Hour), client.Lane("customer/"+order.Customer))
	if err != nil {
		return charge, err
	}
	charge, err = client.Wait[Charge](ctx, c, client.Key("charge", order.ID)) // anybody may wait: another process, and later
	return charge, err
}

func work(ctx context.Context, c *client.Client) error {
	w := c.Worker(client.Concurrency(16), client.Drain(30*time.Second))
	client.Work(w, "charge", func(ctx context.Context, at client.Attempt, o Order) (Charge, error) {
		return pay(ctx, o, at.IdempotencyKey())
	})
	return w.Run(ctx) // until ctx ends; then it finishes what runs
}

// declare runs the policy of the guide.
func declare(ctx context.Context, c *client.Client) error {
	w := c.Worker()
	chargeOrder := func(ctx context.Context, at client.Attempt, o Order) (Charge, error) {
		return pay(ctx, o, at.IdempotencyKey())
	}
	client.Work(w, "charge", chargeOrder, client.Resend(24*time.Hour), client.Retry{Attempts: 8}, client.Timeout(30*time.Second))
	return w.Run(ctx)
}

// TestDocs_GoWorkers runs the Go blocks of the guide for workers: they are lines of this file.
func TestDocs_GoWorkers(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("workers_test.go")
	require.NoError(t, err)
	count := 0
	for _, b := range findBlocks(t, "../../docs/workers.md") {
		if b.language == "go" {
			count++
			require.Contains(t, string(source), "\t"+strings.ReplaceAll(strings.TrimSpace(b.text), "\n", "\n\t")+"\n")
		}
	}
	require.Equal(t, 3, count)
	h := startServer(t, false)
	c, err := client.Connect(t.Context(), h.address(), client.WithSpool(t.TempDir()))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, c) }()
	for range 2 {
		charge, err := submitAndWait(t.Context(), c, Order{"order-42", "7", 1999})
		require.NoError(t, err)
		require.Equal(t, "ch_1999", charge.ID)
	}
	stop()
	require.NoError(t, <-ended)
	ctx, stop = context.WithCancel(t.Context())
	go func() { ended <- declare(ctx, c) }()
	require.Eventually(t, func() bool {
		action, err := c.Action(t.Context(), "charge")
		return err == nil && action.Recovery == "resend"
	}, waitTimeout, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, c.Close(t.Context()))
}
