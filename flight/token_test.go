package flight

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHMAC_MatchesStandardLibrary(t *testing.T) {
	for _, size := range []int{0, 1, 31, 32, 63, 64, 65, 200} {
		for _, length := range []int{0, 1, 27, 44, 63, 64, 100, 300} {
			key, message := make([]byte, size), make([]byte, length)
			_, _ = rand.Read(key)
			_, _ = rand.Read(message)
			want := hmac.New(sha256.New, key)
			want.Write(message)
			got := hmacSHA256(key, message[:length/3], message[length/3:])
			require.Equal(t, want.Sum(nil), got[:], "key of %d bytes, message of %d", size, length)
		}
	}
}

// The idempotency key must never change between versions: the provider would treat a resend as a second intent.
func TestIdempotencyKey_IsStable(t *testing.T) {
	h := Header{Deployment: "4f0c3c1e"}
	for _, key := range []Key{MustKey("default/charge/order-42"), MustKey("n/" + strings.Repeat("a", 200) + "/" + strings.Repeat("b", 200))} {
		sum := sha256.New()
		for _, part := range []string{h.Deployment, key.String(), "7"} {
			sum.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
		}
		require.Equal(t, hex.EncodeToString(sum.Sum(nil)), h.IdempotencyKey(key, 7))
	}
}

// Before the ledger has its secret, nothing is sealed and no token is valid: anybody could compute the MAC.
func TestToken_EmptySecret(t *testing.T) {
	id, token := MustKey("n/a/1").FlightID(), Token{StoreEpoch: 1, Number: 2}
	require.Empty(t, token.Seal(nil, id, 1, "session"))
	sealed := token.Seal([]byte("secret"), id, 1, "session")
	numbers, err := hex.DecodeString(sealed[:sealedNumbers])
	require.NoError(t, err)
	forged := sealed[:sealedNumbers+1] + hex.EncodeToString(tokenMAC(nil, numbers, id))
	var invalid *InvalidError
	for _, s := range []string{sealed, forged, ""} {
		_, _, err := Unseal(s, nil, id)
		require.ErrorAs(t, err, &invalid, "%q", s)
	}
	got, generation, err := Unseal(sealed, []byte("secret"), id)
	require.NoError(t, err)
	require.Equal(t, token, got)
	require.Equal(t, uint32(1), generation)
}
