package node

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
)

// 5,000 requests with a forged token, to every kind of route, leave the flights, documents and audit log of the ledger as they were. Package
// httpapi tests the forms of malformed headers.
func TestForgedTokensChangeNothing(t *testing.T) {
	t.Parallel()
	cfg := Dev(t.TempDir(), "127.0.0.1:0")
	var admin string
	cfg.NoCredentials, cfg.FirstToken.Print = false, func(secret string) { admin = secret }
	cfg.tuning.recordEvery = time.Hour
	n := openConfig(t, cfg)
	recorded := func() bool { return n.store.Header().GuardCounter > 0 } // the start records the counter of etcd's guard key
	require.Eventually(t, recorded, waitLimit, time.Millisecond)
	api := n.act.Load().api()
	send := func(method, path, token string) int {
		req := httptest.NewRequest(method, path, strings.NewReader(`{"action":"charge","id":"order-1"}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, req)
		return answer.Code
	}
	require.Equal(t, http.StatusOK, send("GET", "/v1/whoami", admin))
	stored := func() any {
		audit, _, err := n.store.Audit(flight.Version{}, 1000, func(*flight.AuditEntry) bool { return true })
		require.NoError(t, err)
		return []any{n.store.Documents(""), n.store.Stats().Flights, audit}
	}
	before := stored()

	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	flightID := "/v1/flights/fl_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	routes := []string{"POST /v1/flights:open", "POST /v1/flights:abandon", "POST /v1/flights:import", "POST /v1/sessions", "POST /v1/tokens",
		"DELETE /v1/tokens/%2A/admin", "PUT /v1/namespaces/billing", "GET /v1/flights", "GET /v1/audit", "GET /v1/events", "GET " + flightID,
		"POST " + flightID + "/report", "POST " + flightID + "/resolve", "POST " + flightID + "/free", "POST " + flightID + "/redact"}
	for i := range 5000 {
		forged := []byte(admin)
		switch at := len(auth.Prefix) + random.IntN(len(admin)-len(auth.Prefix)); i % 4 {
		case 0:
			forged[at] ^= 1 // another character of the alphabet, or one outside it
		case 1:
			forged = forged[:at]
		case 2:
			forged = append(forged, ".billing"...)
		default:
			forged = []byte(auth.NewSecret("*"))
		}
		method, path, _ := strings.Cut(routes[random.IntN(len(routes))], " ")
		require.Equal(t, http.StatusUnauthorized, send(method, path, string(forged)), "seed %d: %s %s with %s", seed, method, path, fmt.Sprintf("%q", forged))
	}
	require.Equal(t, before, stored(), "seed %d", seed)
	require.Equal(t, http.StatusCreated, send("POST", "/v1/flights:open", admin), "the valid token still acts")
	require.NotEqual(t, before, stored())
}
