//go:build browser

package console

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page shows the decisions of people with links to their flights, in pages, and what a token for administration may see.
func TestAdmin(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	for i := range 55 {
		s.must("POST", "/v1/queues/charge/pause", object{"reason": fmt.Sprintf("pause %d, <b>by the bank</b>", i)}, "Flightd-Namespace", "default")
	}
	id := s.doubt("charge", "order-1", object{"amount": 1})
	f := s.must("GET", "/v1/flights/"+id, nil)
	s.must("POST", "/v1/flights/"+id+"/resolve", object{"result": "fail", "reason": "the bank says so", "actor": "Ann"}, "If-Match", `"`+f["version"].(string)+`"`)
	s.must("POST", "/v1/tokens", object{"name": "shop", "namespace": "default", "verbs": []string{"submit", "read"}, "expires_in_ms": 86_400_000 * 90, "reason": "the shop"})
	s.must("PUT", "/v1/notify/oncall", object{"url": "http://127.0.0.1:9/hook", "events": []string{"flight.in_doubt"}, "reason": "doubts go to the person on call"})
	p := openTab(t, 1280, 844, false)
	p.visit(s.url + "/console/#/admin")
	p.sees(`[aria-label="Audit log"]`, "the bank says so")
	p.sees(`[aria-label="Audit log"] a[href*="order-1"]`, "default/charge/order-1")
	p.sees(`[aria-label="Tokens"]`, "submit, read")
	p.sees(`[aria-label="Targets of notifications"]`, "flight.in_doubt")
	require.NotContains(t, value[string](p, `document.body.innerText`), "whsec_")
	require.Equal(t, int64(50), value[int64](p, `document.querySelectorAll("[aria-label='Audit log'] tbody tr").length`))
	p.click(".pager a")
	p.sees(`[aria-label="Audit log"]`, "pause 0, <b>by the bank</b>")
	p.click(".pager a")
	p.sees(`[aria-label="Audit log"]`, "the bank says so")
	require.Empty(t, violations(p))
}
