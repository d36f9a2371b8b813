package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// A token that lasts an hour, and a provider that knows a key for an hour, at a node whose clock has stood still for six hours
// and that leads: the token is rejected and the effect is not sent again. With a clock that is a year ahead the token is valid.
// The provider may have forgotten the key by the highest clock, so a clock that is ahead costs a doubt, and no second effect.
func TestCluster_ClocksApart(t *testing.T) {
	long(t)
	t.Parallel()
	const still, ahead = -6 * time.Hour, 365 * 24 * time.Hour
	for _, c := range []struct {
		name          string
		before, after time.Duration // by which all clocks are wrong, and the leader's then
		third         bool          // the third node runs
		over          bool          // the hour has passed
	}{
		{"the leader's clock stood still", still, still, true, true},
		{"the leader's clock stood still, and a node is away", still, still, false, true},
		{"the leader's clock is a year ahead", 0, ahead, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testClockApart(t, c.before, c.after, c.third, c.over)
		})
	}
}

func testClockApart(t *testing.T, before, after time.Duration, third, over bool) {
	admin := auth.NewSecret(flight.AllNamespaces)
	hash := sha256.Sum256([]byte(admin))
	c := newTestClusterWith(t, peer.FoundOptions{TokenSHA256: hex.EncodeToString(hash[:])}, func(cfg *Config) {
		cfg.NoCredentials, cfg.Listen.AllowPlainHTTP, cfg.FirstToken.Print, cfg.Process.WallOffset = false, true, func(string) {}, before
	})
	send := func(i int, token, method, path, body string) (status int, answer string) {
		r, err := http.NewRequestWithContext(t.Context(), method, c.nodes[i].server.url()+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer got.Body.Close()
		text, err := io.ReadAll(got.Body)
		require.NoError(t, err)
		return got.StatusCode, string(text)
	}
	var hour struct{ Token string }
	require.Eventually(t, func() bool {
		status, body := send(0, admin, http.MethodPost, "/v1/tokens", `{"name":"pay","namespace":"default","expires_in_ms":3600000,"reason":"a test"}`)
		return status < 300 && json.Unmarshal([]byte(body), &hour) == nil
	}, waitLimit, 50*time.Millisecond, "the cluster has no first token")
	open := func(i int, token, as string) (status int, body string) {
		return send(i, token, http.MethodPost, "/v1/flights:open", fmt.Sprintf(
			`{"action":"pay","id":"order","input":{"n":1},"nonce":%q,"ttl_ms":5000,"wait_ms":0,"recovery":"resend","provider_window_ms":3600000}`, nonce(as)))
	}
	status, body := open(1, hour.Token, "first")
	require.Equal(t, http.StatusCreated, status, body)
	for i := range c.names {
		c.stop(i)
	}

	for i := range c.names {
		c.configs[i].Process.WallOffset = 0
	}
	c.configs[0].Process.WallOffset = after
	for i := range c.names {
		if i < 2 || third {
			c.start(i)
		}
	}
	c.ready(0)
	c.ready(1)
	require.Eventually(t, func() bool { // node a leads
		if lead := c.leader(); lead != 0 {
			_ = c.nodes[lead].store.TransferLeadership(t.Context(), c.nodes[0].cluster.instance)
		}
		return c.nodes[0].act.Load() != nil && c.nodes[0].store.Header().Wall > 0
	}, waitLimit, 100*time.Millisecond, "node a does not lead")
	status, body = send(1, hour.Token, http.MethodGet, "/v1/flights", "")
	if over {
		require.Equal(t, http.StatusUnauthorized, status, body)
	} else {
		require.Equal(t, http.StatusOK, status, body)
	}
	var last string
	require.Eventually(t, func() bool { // the first session ends
		status, last = open(1, admin, "second")
		return status != http.StatusConflict || !strings.Contains(last, string(wire.InFlight))
	}, waitLimit, 200*time.Millisecond, "the key stays blocked")
	require.Equal(t, http.StatusConflict, status, last)
	require.Contains(t, last, string(wire.InDoubt))
}
