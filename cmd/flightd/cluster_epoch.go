package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

func newClusterRaiseLeaseEpochCommand(a *cli.App) *cobra.Command {
	return a.Decision(&cobra.Command{
		Use:   "raise-lease-epoch --reason WHY",
		Short: "Accept an etcd that has lost data, in a cluster that runs",
		Long: `Accepts an etcd that knows less than the ledger, for example after it was restored from a snapshot. Until then nothing opens.

All sessions end. Attempts that were open are not taken over before their holders must have ended: that takes the longest session,
time-out and settle delay together. No receipt is lost. If etcd has lost nothing, this changes nothing.`,
		Example: `  flightd cluster raise-lease-epoch --reason 'etcd was restored from its snapshot of noon'`,
		Args:    cli.ExactArgs(0, "no arguments"),
	}, func(_ []string) error {
		return a.Confirm(true, "If etcd has lost data, all sessions end now. Raise the lease epoch?")
	}, func(ctx context.Context, c *client.Client, _ []string, reason string) error {
		state, err := c.RaiseLeaseEpoch(ctx, reason)
		if err != nil {
			return err
		}
		a.Say("the lease epoch is %d; attempts of older epochs keep their keys for %v more", state.Epoch, (time.Duration(state.HoldMS) * time.Millisecond).Round(time.Second))
		return a.PrintUnlessTable(fmt.Sprint(state.Epoch), state)
	})
}
