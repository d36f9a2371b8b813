package node

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// The name localhost may resolve to an address that is not a loopback address.
func TestHostResolvingElsewhereIsRejected(t *testing.T) {
	ours, err := listen("listen", "localhost:0")
	require.NoError(t, err)
	_ = ours.Close()
	everybody, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	var invalid *flight.InvalidError
	_, err = onlyLoopback("listen", everybody)
	require.ErrorAs(t, err, &invalid, "an address that other machines reach: %v", err)
	_, err = everybody.Accept()
	require.Error(t, err, "it still listens")
}
