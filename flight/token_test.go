package flight

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
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

// A fencing token and a callback token are never accepted as each other, and a callback token with another digit as nothing.
func TestCallbackToken(t *testing.T) {
	secret, id := []byte("secret"), MustKey("n/a/1").FlightID()
	token := CallbackToken{ID: id, Generation: 3, Token: Token{StoreEpoch: 1, Number: 2}}
	sealed := token.Seal(secret)
	got, ok := UnsealCallback(sealed, secret)
	require.True(t, ok)
	require.Equal(t, token, got)
	require.Empty(t, token.Seal(nil))

	fencing := token.Token.Seal(secret, id, 3, "session")
	_, _, err := Unseal(sealed, secret, id)
	require.Error(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(sealed, CallbackPrefix))
	require.NoError(t, err)
	numbers := append(append([]byte{0, 0, 0, 1}, 0, 0, 0, 2), append([]byte{0, 0, 0, 3}, make([]byte, 8)...)...)
	_, _, err = Unseal(hex.EncodeToString(numbers)+"."+hex.EncodeToString(raw[callbackNumbers:]), secret, id)
	require.Error(t, err, "the MAC of a callback token is not that of a fencing token")
	wrong := []string{"", CallbackPrefix, fencing, CallbackPrefix + fencing, sealed + "A", sealed[:len(sealed)-1], strings.ToUpper(sealed), strings.TrimPrefix(sealed, CallbackPrefix)}
	for i := range raw {
		forged := slices.Clone(raw)
		forged[i] ^= 1
		wrong = append(wrong, CallbackPrefix+base64.RawURLEncoding.EncodeToString(forged))
	}
	for _, s := range wrong {
		_, ok := UnsealCallback(s, secret)
		require.False(t, ok, s)
	}
	_, ok = UnsealCallback(sealed, []byte("other"))
	require.False(t, ok)
	_, ok = UnsealCallback(sealed, nil)
	require.False(t, ok)
}

// Under resend every attempt of a generation has the same callback token, under the other policies its own.
func TestCallbackToken_Attempts(t *testing.T) {
	h := Header{StoreEpoch: 1}
	f := &Flight{Generation: 2, Attempts: []Attempt{{Number: 7}}, AttemptCount: 1}
	first := f.CallbackToken(&h)
	require.Equal(t, Token{StoreEpoch: 1, Number: 7}, first.Token)
	f.Attempts, f.AttemptCount = append(f.Attempts, Attempt{Number: 8}), 2
	require.Equal(t, Token{StoreEpoch: 1, Number: 8}, f.CallbackToken(&h).Token)
	f.Policy.Recovery = RecoveryResend
	require.Equal(t, first, f.CallbackToken(&h))
}
