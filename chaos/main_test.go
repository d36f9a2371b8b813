package main

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// The command in a report repeats the run on any machine.
func TestRepeat(t *testing.T) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	for _, name := range []string{"faults", "flightd", "keep", "nodes", "report", "seed"} {
		flags.String(name, "", "")
	}
	require.NoError(t, flags.Parse([]string{"-nodes=5", "-faults=node killed,etcd's leader", "-report=/tmp/x.html", "-keep=/tmp", "-flightd=/tmp/flightd"}))
	require.Equal(t, `go run -C chaos . -seed=17 -faults='node killed,etcd'\''s leader' -nodes=5`, repeat(flags, 17))
}
