package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// notifications know no failure.
type notifications struct{ httpapi.Notifications }

func (notifications) Failing() map[string]wire.NotifyFailure { return nil }

// A target can get the events of all namespaces, so a token of one namespace may do nothing with targets, and neither may a token without
// the verb admin. The administrator sees neither the secret nor the path of the URL again.
func TestNotify_IsForAdministratorsOfAllNamespaces(t *testing.T) {
	g := newGuardedServer(t, auth.NodeLimits{}, func(c *httpapi.Config) { c.Notify = notifications{} })
	admin := g.as("*", "admin", auth.AllVerbs)
	const target = `{"url":"https://hooks.example.com/secret-path","secret":"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","reason":"r"}`
	require.Equal(t, http.StatusOK, admin.do("PUT", "/v1/notify/oncall", target).status)
	for _, other := range []*tokenServer{g.as("billing", "boss", auth.AllVerbs), g.as("*", "operator", auth.AllVerbs&^auth.Admin)} {
		before := g.fake.Snapshot()
		for _, r := range []reply{other.do("GET", "/v1/notify", ""), other.do("GET", "/v1/notify/oncall", ""), other.do("PUT", "/v1/notify/spy", target), other.do("PUT", "/v1/notify/oncall", target),
			other.do("DELETE", "/v1/notify/oncall", `{"reason":"r"}`), other.do("POST", "/v1/notify/oncall/test", `{}`)} {
			requireProblem(t, r, http.StatusForbidden, wire.Forbidden)
			require.NotContains(t, string(r.body), "hooks.example.com")
		}
		require.Equal(t, before, g.fake.Snapshot())
	}
	for _, path := range []string{"/v1/notify", "/v1/notify/oncall", "/v1/audit", "/v1/events?after=0.0&limit=1000"} {
		r := admin.do("GET", path, "", "Flightd-Namespace", "*")
		require.Equal(t, http.StatusOK, r.status, "%s", r.body)
		require.Contains(t, string(r.body), "oncall", path)
		require.NotContains(t, string(r.body), "secret-path", path)
		require.NotContains(t, string(r.body), "whsec_", path)
	}
}
