package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNewKey_HasOneSlash: a second one may come from a full key of another namespace, which would be a new key here.
func TestNewKey_HasOneSlash(t *testing.T) {
	a := &App{Settings: Settings{Namespace: "default"}}
	for said, want := range map[string]string{"pay-7": "default/exec/pay-7", "charge/pay-7": "default/charge/pay-7", "charge/2026%2F03": "default/charge/2026/03", "2026%2F03": "default/exec/2026/03"} {
		key, err := a.NewKey(said)
		require.NoError(t, err, said)
		require.Equal(t, want, key.String(), said)
		found, err := a.candidates(said)
		require.NoError(t, err, said)
		require.Contains(t, found, candidate{ID: key.FlightID(), key: want}, said)
	}
	for _, said := range []string{"billing/exec/pay-7", "default/exec/pay-7", "charge/2026/03", "a/b/c/d", "a/b/", "a%2Fb/c"} {
		_, err := a.NewKey(said)
		require.Error(t, err, said)
	}
}
