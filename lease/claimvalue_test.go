package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestClaimValuesReadAsWritten(t *testing.T) {
	v := ClaimValue{Epoch: 7, Nonce: flight.Nonce{1, 2, 15: 3}, Session: newSessionID()}
	value := v.String()
	got, err := ParseClaimValue(value)
	require.NoError(t, err)
	require.Equal(t, v, got)
	for n := range len(value) - len(v.Session) {
		_, err := ParseClaimValue(value[:n])
		require.Error(t, err, "cut to %d bytes", n)
	}
	_, err = ParseClaimValue("\x01" + value[1:])
	require.Error(t, err, "of another version")
}

// A release compares the whole value, so two leases must never have the same value.
func TestClaimValuesAreDistinct(t *testing.T) {
	v := ClaimValue{Epoch: 7, Nonce: flight.Nonce{1}, Session: "ses_a"}
	for _, w := range []ClaimValue{
		{Epoch: 8, Nonce: v.Nonce, Session: v.Session}, {Epoch: 7, Nonce: flight.Nonce{2}, Session: v.Session},
		{Epoch: 7, Nonce: v.Nonce, Session: "ses_b"},
	} {
		require.NotEqual(t, v.String(), w.String())
	}
}

func TestSessionIDsAreLongAndDistinct(t *testing.T) {
	seen := map[flight.SessionID]bool{}
	for range 1000 {
		id := newSessionID()
		require.Len(t, id, 30)
		require.False(t, seen[id])
		seen[id] = true
	}
}

func FuzzParseClaimValue(f *testing.F) {
	f.Add(ClaimValue{Epoch: 1, Session: "s"}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, value string) {
		if v, err := ParseClaimValue(value); err == nil {
			require.Equal(t, value, v.String())
		}
	})
}
