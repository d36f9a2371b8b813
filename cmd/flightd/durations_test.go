package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// Each flag for a duration takes days.
func TestCLI_DurationsTakeDays(t *testing.T) {
	a := &cli.App{Terminal: cli.Terminal{Env: func(string) string { return "" }}}
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" {
				seen++
				require.NoError(t, f.Value.Set("7d"), "%s --%s", c.CommandPath(), f.Name)
				require.NoError(t, f.Value.Set("90s"), "%s --%s", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(a))
	require.Greater(t, seen, 15)
}
