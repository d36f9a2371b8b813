package main

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// decisionCommands returns the commands that record a decision, each with a flight that it would change.
func decisionCommands(t *testing.T) (world *httpapitest.Fake, env map[string]string, commands map[string][]string) {
	t.Helper()
	world = httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(server.Close)
	for _, id := range []string{"free", "redact"} {
		world.Apply(t, &flight.Import{Key: flight.MustKey("default/charge/" + id), Outcome: flight.OutcomeSucceeded})
	}
	world.Apply(t, &flight.Submit{Key: flight.MustKey("default/charge/retry")})
	world.Apply(t, &flight.Cancel{Key: flight.MustKey("default/charge/retry"), Generation: 1, Actor: "ann", Reason: "a test"})
	submitFlight(t, world, 1)
	return world, map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}, map[string][]string{
		"free":     {"flights", "free", "charge/free"},
		"redact":   {"flights", "redact", "charge/redact"},
		"retry":    {"flights", "retry", "charge/retry"},
		"cancel":   {"flights", "cancel", "charge/1"},
		"happened": {"doubt", "resolve", "charge/1", "--happened", "--no-receipt"},
		"not":      {"doubt", "resolve", "charge/1", "--did-not-happen"},
		"fail":     {"doubt", "resolve", "charge/1", "--fail"},
	}
}

// A decision is recorded with the reason that a person gives; there is no default reason.
func TestDecisions_NeedAReason(t *testing.T) {
	_, env, commands := decisionCommands(t)
	for name, args := range commands {
		for _, reason := range [][]string{nil, {"--reason", ""}, {"--reason", " "}} {
			r := flightd(env, append(append(args, "--yes"), reason...)...)
			require.Equal(t, cli.ExitUsage, r.code, "%s: %v", name, r)
			require.Contains(t, r.err, "--reason is missing", name)
			require.Contains(t, r.err, "\n  ", "a hint: %s", name)
		}
	}
	flightd(env, append(commands["free"], "--yes", "--reason", "a new order", "--actor", "ann")...).
		want(t, cli.ExitOK, "by ann: a new order", "")
}

// Without a terminal, an irreversible command needs --yes.
func TestDecisions_WithoutATerminalNeedYes(t *testing.T) {
	world, env, commands := decisionCommands(t)
	for name, args := range commands {
		if name == "cancel" { // reversible
			continue
		}
		r := flightd(env, append(args, "--reason", "a test")...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %v", name, r)
		require.Contains(t, r.err, "--yes", name)
		require.Contains(t, r.err, "nothing was changed", name)
	}
	require.Equal(t, flight.StateCancelled, world.Flight(flight.MustKey("default/charge/retry")).State)
	require.Equal(t, flight.StateSucceeded, world.Flight(flight.MustKey("default/charge/free")).State)
	for _, name := range []string{"free", "redact", "retry", "cancel"} {
		args := append(commands[name], "--reason", "a test")
		if name != "cancel" {
			args = append(args, "--yes")
		}
		require.Zero(t, flightd(env, args...).code, name)
	}
}
