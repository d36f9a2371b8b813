package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-part") {
		main()
		return
	}
	os.Exit(m.Run())
}

// The parts of a large ledger's measurement understand each other, and a node accepts the ledger that was loaded.
func TestMeasureLarge(t *testing.T) {
	o, err := parse([]string{"-stored", "10000", "-only", "node", "-rounds", "1", "-span", "20ms", "-callers", "4"})
	require.NoError(t, err)
	o.dir = t.TempDir()
	var table bytes.Buffer
	require.NoError(t, measureLarge(t.Context(), o, &table))
	for _, row := range []string{"loaded through the ledger", "disk per receipt, total", "new key, node", "replay over HTTP, random against hot, 4 callers"} {
		require.Contains(t, table.String(), "\n| "+row)
	}
}
