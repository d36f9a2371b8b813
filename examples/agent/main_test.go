package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// The person sees who asks for what, and what has happened. Behind a yes each tool is called once; behind a no the hold is undone.
func TestAgent(t *testing.T) {
	t.Setenv("FLIGHTD_ADDR", "")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out))
	require.Equal(t, `the agent asks for default/refund/order-1#boss: {"input":{"cents":4200,"order":"order-1"},"steps":{"hold":{"body":"hold-order-1","external_id":"","outcome":"succeeded"}}}
order-1: done
the agent asks for default/refund/order-2#boss: {"input":{"cents":420000,"order":"order-2"},"steps":{"hold":{"body":"hold-order-2","external_id":"","outcome":"succeeded"}}}
order-2: undone: step boss was cancelled: rejected: looked at the order
the books: hold order-1, pay order-1, mail order-1, hold order-2, release order-2
`, out.String())
}
