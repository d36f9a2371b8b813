package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/cmd/flightd/internal/doctor"
)

// Two lone servers in one list are two ledgers.
func TestDoctor_TwoLedgersInOneList(t *testing.T) {
	t.Parallel()
	s, other := startServer(t), startServer(t)
	by, r := s.runDoctor("--server", s.url()+","+other.url())
	require.Equal(t, cli.ExitFailed, r.code, "%v", r)
	require.Equal(t, doctor.StatusFail, by["servers"].Status, "%v", r)
	require.Contains(t, by["servers"].Do, "FLIGHTD_DEPLOYMENT")
	by, _ = s.runDoctor("--server", s.url()+","+s.url())
	require.Equal(t, doctor.StatusOK, by["servers"].Status)
	require.Empty(t, by["cluster"].Status, "a lone node is no cluster")
}
