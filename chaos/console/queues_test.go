//go:build browser

package console

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// submit submits jobs of the action charge to a lane; "": to none.
func (s *server) submit(lane string, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		body := object{"action": "charge", "id": id, "input": object{"id": id}}
		if lane != "" {
			body["lane"] = lane
		}
		s.must("POST", "/v1/flights:submit", body)
	}
}

// busyQueue has a job that a worker holds, and a lane of three whose first job is in doubt.
func busyQueue(s *server) {
	s.t.Helper()
	s.submit("customer/7", "bad-1", "after-1", "after-2")
	s.submit("", "long-1")
	s.worker(`case $FLIGHTD_KEY in *bad*) exit 1;; *long*) sleep 300;; esac`, "charge", "--concurrency", "2")
	s.awaits("/v1/queues", func(a object) bool {
		return slices.ContainsFunc(a["queues"].([]any), func(of any) bool {
			q := of.(object)
			return q["action"] == "charge" && q["in_doubt"] == 1.0 && q["running"] == 1.0
		})
	})
}

func TestQueues(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	busyQueue(s)
	queue := func() object { return s.must("GET", "/v1/queues", nil)["queues"].([]any)[0].(object) }
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/queues")
	p.sees(".rows td", "charge")
	p.sees(".rows td", "1 lane stuck")
	require.Equal(t, []string{"0", "1", "1", "2", "1"}, value[[]string](p, `["Ready", "Running", "Workers", "Held", "Doubts"].map((n) => document.querySelector("td[data-name=" + n + "]").innerText)`))
	p.press("j")
	p.sees(".detail .worker", "charge/long-1")
	p.sees(".lane", "customer/7 2 jobs wait for default/charge/bad-1")
	p.until(`document.querySelectorAll(".lane li").length === 3`)
	require.Equal(t, []string{"in doubt", "held", "held"}, value[[]string](p, `[...document.querySelectorAll(".lane li .state")].map((e) => e.innerText)`), "their lane holds them back")
	p.until(`document.querySelector(".chart .plot").dataset.points > 1`)

	p.shortcut("p")
	p.sees("dialog .does", "No job of the action is handed out")
	require.True(t, value[bool](p, `document.querySelector("dialog button.act").disabled`), "without a reason nothing is sent")
	p.fill("dialog input[name=reason]", "the <b>bank</b> is down")
	p.fill("dialog input[name=actor]", "Ann")
	p.press("\r")
	p.sees(".detail .says", "the <b>bank</b> is down")
	require.Equal(t, "the <b>bank</b> is down", queue()["paused"].(object)["reason"])
	require.Equal(t, "Ann", queue()["paused"].(object)["actor"])
	s.submit("", "later-1", "later-2")
	p.sees("td[data-name=Ready]", "2")

	p.click("[data-verb=resume]")
	p.fill("dialog input[name=reason]", "the bank is back")
	p.click("dialog button.act")
	p.until(`!document.querySelector("dialog") && document.querySelector("[data-verb=pause]")`)
	require.NotContains(t, queue(), "paused")
	p.sees("td[data-name=Ready]", "0") // the worker has them
}

// A pause is of the namespace of the queue that was chosen, whichever namespaces the list shows.
func TestQueues_OfNamespaces(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	for _, namespace := range []string{"default", "shop"} {
		s.must("POST", "/v1/flights:submit", object{"action": "mail", "id": "m-1", "input": object{}}, "Flightd-Namespace", namespace)
	}
	p := openTab(t, 390, 844, true)
	p.visit(s.url + "/console/#/queues?namespace=shop&action=mail")
	p.sees(".detail h2", "shop/mail")
	p.decide("pause", "", "test")
	p.sees(".detail .says .state", "paused")
	for namespace, paused := range map[string]bool{"default": false, "shop": true} {
		queue := s.must("GET", "/v1/queues", nil, "Flightd-Namespace", namespace)["queues"].([]any)[0].(object)
		require.Equal(t, paused, queue["paused"] != nil, fmt.Sprint(namespace, queue))
	}
}

// A dialog that is closed before the answer has come says what became of its decision.
func TestQueues_ClosedDialog(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.submit("", "order-1")
	gate := make(chan bool)
	proxy := s.between(func(w http.ResponseWriter, r *http.Request, node http.Handler) {
		if r.Method == http.MethodPost {
			<-gate
			http.Error(w, `{"code":"forbidden","title":"The token does not allow this"}`, http.StatusForbidden)
			return
		}
		node.ServeHTTP(w, r)
	})
	p := openTab(t, 1280, 800, false)
	p.failedRequests = true
	p.visit(proxy.url + "/console/#/queues?namespace=default&action=charge")
	p.click("[data-verb=pause]")
	p.fill("dialog input[name=reason]", "test")
	p.click("dialog button.act")
	p.press("\x1b")
	p.until(`!document.querySelector("dialog")`)
	close(gate)
	p.sees(".toasts .bad", "The token does not allow this")
}
