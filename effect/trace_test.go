package effect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	trace  = "0af7651916cd43dd8448eb211c80319c"
	parent = "00-" + trace + "-b7ad6b7169203331-01"
)

func TestTraceID(t *testing.T) {
	for header, want := range map[string]string{
		parent: trace,
		"01-" + trace + "-b7ad6b7169203331-01-later": trace,
		"cc-" + trace + "-b7ad6b7169203331-00":       trace,
		"":                                           "", "00": "", parent + "-more": "", parent[:54]: "", strings.ToUpper(parent): "",
		"ff-" + trace + "-b7ad6b7169203331-01":                             "",
		"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01":           "",
		"00-" + trace + "-0000000000000000-01":                             "",
		"00_" + trace + "-b7ad6b7169203331-01":                             "",
		"00-" + trace + "-b7ad6b7169203331-0x":                             "",
		"01-" + trace + "-b7ad6b7169203331-01later":                        "",
		"01-" + trace + "-b7ad6b7169203331-01-\r\nX: y":                    "",
		"01-" + trace + "-b7ad6b7169203331-01-" + strings.Repeat("x", 300): "",
	} {
		require.Equal(t, want, TraceID(header), header)
	}
	require.Equal(t, parent, SampledTrace(parent).Traceparent())
	require.Equal(t, parent, SampledTrace("cc-"+trace+"-b7ad6b7169203331-03-later").Traceparent())
	require.Zero(t, SampledTrace("00-"+trace+"-b7ad6b7169203331-02"), "not sampled")
	require.Zero(t, SampledTrace("nonsense"))
	ctx := WithTraceparent(t.Context(), "nonsense")
	require.Equal(t, t.Context(), ctx)
	require.Empty(t, Traceparent(ctx))
	require.Equal(t, parent, Traceparent(WithTraceparent(ctx, parent)))
}

// TestTransportPassesTraceOn: the provider gets the caller's trace unchanged, unless the handler has set its own span.
func TestTransportPassesTraceOn(t *testing.T) {
	got := make(chan string, 1)
	provider := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("traceparent") }))
	defer provider.Close()
	own := "00-" + trace + "-00000000000000aa-01"
	send := func(at context.Context, req context.Context, set string) string {
		r, err := http.NewRequestWithContext(req, http.MethodPost, provider.URL, nil)
		require.NoError(t, err)
		if set != "" {
			r.Header.Set("traceparent", set)
		}
		resp, err := NewAttempt(Spec{Context: at}).Transport(nil).RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return <-got
	}
	plain, traced := t.Context(), WithTraceparent(t.Context(), parent)
	require.Equal(t, parent, send(traced, plain, ""))
	require.Equal(t, parent, send(plain, traced, ""), "that of the request's own context comes first")
	require.Equal(t, own, send(traced, plain, own))
	require.Empty(t, send(plain, plain, ""))
	require.Empty(t, send(nil, plain, ""))
}
