package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

// A client of a handler in this process acts once, as over a connection, when answers break off. It reads no setting of the
// environment.
func TestWithHandler(t *testing.T) {
	t.Setenv("FLIGHTD_TOKEN", "no token at all")
	t.Setenv("FLIGHTD_DEPLOYMENT", "another one")
	g := newFixture(t)
	c, err := client.Connect(t.Context(), "here", client.WithHandler(g.server.Config.Handler), client.WithSpool(t.TempDir()))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	broken := map[string]int{}
	g.setFault(func(r *http.Request) fault {
		broken[r.URL.Path]++
		return []fault{none, cutAfter, cutBefore}[broken[r.URL.Path]%3]
	})
	ran := 0
	for range 2 {
		result, err := c.Do(t.Context(), call(`1`), func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			ran++
			require.Len(t, c.SessionsInUse(), 1)
			return effect.Answer{ExternalID: "ch_1"}, at.Sending()
		})
		require.NoError(t, err)
		require.Equal(t, "ch_1", result.Answer.ExternalID)
		require.Empty(t, c.SessionsInUse())
	}
	require.Equal(t, 1, ran)
}

// An answer that a reverse proxy has received in part is not taken for a whole one.
func TestWithHandler_IncompleteAnswer(t *testing.T) {
	var asked atomic.Int32
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
		_, _ = w.Write([]byte(`{"version":"1","api":"v1","deployment":"d"}`))
		if asked.Add(1) == 1 {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	defer behind.Close()
	to, err := url.Parse(behind.URL)
	require.NoError(t, err)
	c, err := client.Connect(t.Context(), "here", client.WithHandler(httputil.NewSingleHostReverseProxy(to)), client.WithoutSpool())
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	require.EqualValues(t, 2, asked.Load())
	http.DefaultClient.CloseIdleConnections()
}
