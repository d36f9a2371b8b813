package cluster

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
)

// The provider honours idempotency keys under recovery resend alone, and its books have every request.
func TestProvider(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := new(History)
	p := newProvider(l, h)
	defer p.close()
	url := "http://" + l.Addr().String() + "/effects"
	read := func(answer *http.Response, err error) string {
		require.NoError(t, err)
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.Status + string(body)
	}
	post := func(key, idempotencyKey string) string {
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"key":"`+key+`"}`))
		require.NoError(t, err)
		request.Header.Set(effect.HeaderIdempotencyKey, idempotencyKey)
		return read(http.DefaultClient.Do(request))
	}
	require.NotEqual(t, post("default/hold/1", "k"), post("default/hold/1", "k"))
	first := post("default/resend/1", "r")
	require.Equal(t, first, post("default/resend/1", "r"))
	require.NotEqual(t, first, post("default/resend/1", "other"))
	require.Len(t, h.Effects, 5)
	require.True(t, h.Effects[3].Repeat)
	require.Equal(t, first, read(http.Get(url+"?key=default/resend/1")))
	require.Contains(t, read(http.Get(url+"?key=default/resend/2")), "404")
}
