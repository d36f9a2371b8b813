package node

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestOneProcessPerDataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := lockData(dir)
	require.NoError(t, err)
	_, err = lockData(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked, "the second one got %v", err)
	require.Equal(t, strconv.Itoa(os.Getpid()), locked.Holder, "the second one got %v", err)
	require.Contains(t, err.Error(), locked.Holder, "the second one got %v", err)
	require.NoError(t, first.Close())
	again, err := lockData(dir)
	require.NoError(t, err, "lock after the first holder closed: %v", err)
	_ = again.Close()
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	for address, good := range map[string]bool{
		"127.0.0.1:7420": true, "127.9.9.9:1": true, "[::1]:7420": true, "localhost:0": true,
		"0.0.0.0:7420": false, ":7420": false, "192.168.1.1:7420": false, "[::]:7420": false, "example.org:7420": false,
		"127.0.0.1": false, "127.0.0.1:99999": false, "127.0.0.1:x": false,
	} {
		err := checkLoopback("listen", address)
		var invalid *flight.InvalidError
		require.Equal(t, (err == nil), good, "%s: %v", address, err)
		require.False(t, err != nil && !errors.As(err, &invalid), "%s: %v", address, err)
	}
}
