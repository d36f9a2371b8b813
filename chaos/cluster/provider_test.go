package cluster

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

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
	require.Eventually(t, func() bool { return read(http.Get(url+"?key=default/resend/1")) == first }, time.Minute, 10*time.Millisecond)
	require.Contains(t, read(http.Get(url+"?key=default/resend/2")), "404")
}

// The first request for some steps of sagas fails, in three ways; after that they are served.
func TestProvider_FaultsOfSteps(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := new(History)
	p := newProvider(l, h)
	defer p.close()
	seen := make(map[int]bool)
	for i := range 100 {
		key := fmt.Sprintf("default/trip-0/saga-%d#seat-resend", i)
		post := func() int {
			request, err := http.NewRequest(http.MethodPost, "http://"+l.Addr().String()+"/effects", strings.NewReader(`{"key":"`+key+`"}`))
			require.NoError(t, err)
			request.Header.Set(effect.HeaderIdempotencyKey, key)
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return answerLost
			}
			require.NoError(t, answer.Body.Close())
			return answer.StatusCode
		}
		fault := cmp.Or(faultOf(key), http.StatusOK)
		require.Equal(t, fault, post())
		require.Equal(t, http.StatusOK, post())
		last := h.Effects[len(h.Effects)-1]
		require.Equal(t, fault == http.StatusOK || fault == answerLost, last.Repeat, "the effect of a lost answer has happened")
		seen[fault] = true
	}
	require.Len(t, seen, 4)
	require.Zero(t, faultOf("default/hold/1"))
}
