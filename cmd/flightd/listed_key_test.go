package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
)

// A long key does not make a table wide.
func TestListedKey(t *testing.T) {
	require.Equal(t, "default/exec/pay-7", listedKey(&client.Flight{Key: "default/exec/pay-7"}))
	long := listedKey(&client.Flight{Key: "default/charge/" + strings.Repeat("é", 200) + "-end"})
	require.Len(t, []rune(long), maxListedKey)
	require.True(t, strings.HasPrefix(long, "default/charge/é") && strings.HasSuffix(long, "-end"), long)
}
