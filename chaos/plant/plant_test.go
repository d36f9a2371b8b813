package plant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each edit finds its code, once. The builds take minutes, so they would notice late.
func TestBugs_NameCodeThatExists(t *testing.T) {
	names := make(map[string]bool)
	for i := range Bugs {
		b := &Bugs[i]
		require.False(t, names[b.Name], "two bugs are named %q", b.Name)
		names[b.Name] = true
		require.NotEmpty(t, b.Rule, b.Name)
		require.NotEmpty(t, b.Faults, b.Name)
		_, err := Overlay(b, "../..", t.TempDir())
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, len(Bugs), 32)
}

func TestOverlay_RejectsAnEditThatFindsNothing(t *testing.T) {
	b := &Bug{Name: "none", Edits: []Edit{{File: "go.mod", Old: "no such line", New: ""}}}
	_, err := Overlay(b, "../..", t.TempDir())
	require.ErrorContains(t, err, "0 times")
	b.Edits[0].File = "no-such-file"
	_, err = Overlay(b, "../..", t.TempDir())
	require.ErrorContains(t, err, "no-such-file")
}
