//go:build browser

package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// decide opens the dialog of a verb on the page of a flight, and decides.
func (tb *testBrowser) decide(verb, choice, reason string) {
	tb.t.Helper()
	tb.click("[data-verb=" + verb + "]")
	if choice != "" {
		tb.click("input[value=" + choice + "]")
	}
	if reason != "" {
		tb.fill("dialog input[name=reason]", reason)
	}
	tb.until(`document.querySelector("dialog .does").innerText.length > 40`) // it says what it will do
	tb.click("dialog button.act")
	tb.until(`!document.querySelector("dialog")`)
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	p := openTab(t, 1280, 800, false)
	at := func(key string) {
		t.Helper()
		p.visit(link(s, "default", key))
		p.until(`document.querySelector(".verbs")`)
	}
	state := func(key string) string {
		t.Helper()
		return s.must("GET", "/v1/flights?key="+key, nil)["state"].(string)
	}

	// A doubt: it did not happen, it must not run, it happened and there is no receipt.
	for _, c := range []struct{ choice, state string }{{"not_happened", "ready"}, {"fail", "failed"}} {
		s.doubt("charge", c.choice, object{"cents": 1})
		at("default/charge/" + c.choice)
		p.decide("resolve", c.choice, "looked it up")
		p.sees(".says .state", c.state)
		require.Equal(t, c.state, state("default/charge/"+c.choice))
	}
	s.doubt("charge", "none", nil)
	at("default/charge/none")
	p.click("[data-verb=resolve]")
	p.click("input[value=happened]")
	p.fill("dialog input[name=reason]", "the customer has the parcel")
	p.sees("dialog .buttons", "say that there is neither")
	p.click("dialog input[name=none]")
	p.click("dialog button.act")
	p.sees(".says .state", "succeeded")

	// A flight that failed is retried, and cancelled before anybody runs it.
	at("default/charge/fail")
	p.decide("retry", "", "the bank is back")
	p.sees(".says .state", "ready")
	p.sees(".timeline", "let it run again (the bank is back)")
	p.decide("cancel", "", "the customer called")
	p.sees(".says .state", "cancelled")
	require.Equal(t, "cancelled", state("default/charge/fail"))

	// A receipt is erased, and a key is freed.
	s.succeed("charge", "secret", object{"card": "4111"}, object{"card": "4111"})
	at("default/charge/secret")
	p.sees("pre", "4111")
	p.decide("redact", "", "it has a card number")
	p.sees("article", "It was erased.")
	require.False(t, value[bool](p, `document.body.innerText.includes("4111")`))
	p.decide("free", "", "the customer orders again")
	p.until(`document.querySelector("main .problem code") || document.querySelector(".says .state.absent")`)
	_, status := s.call("GET", "/v1/flights?key=default/charge/secret", nil)
	require.Equal(t, 404, status)

	// Approvals.
	for _, id := range []string{"yes", "no"} {
		s.must("POST", "/v1/flights:submit", object{"action": "refund", "id": id, "input": object{"cents": 4200}, "recovery": "resend", "approval": object{"expires_ms": 3600000}}, "Flightd-Actor", "Bea")
	}
	at("default/refund/yes")
	p.sees(".facts", "Bea")
	p.sees(".blocks", "a person to approve it")
	p.decide("approve", "", "")
	p.sees(".says .state", "ready")
	p.sees(".blocks", "no worker")
	at("default/refund/no")
	p.decide("reject", "", "the order is unknown")
	p.sees(".says .state", "cancelled")
	require.Equal(t, "cancelled", state("default/refund/no"))
}

func TestVerbs_AboutMany(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	var ids []string
	for i := range 30 {
		ids = append(ids, s.doubt("mail", fmt.Sprintf("case-%d", i), object{"to": fmt.Sprintf("user-%d@example.com", i)}))
	}
	s.doubt("charge", "order-1", nil)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/doubts?action=mail")
	p.until(`document.querySelectorAll(".item").length === 30`)
	p.press("*")
	p.sees(".bulk", "30 selected")
	p.press("R")
	p.sees("dialog h2", "30 flights")
	p.sees("dialog .samples", "user-0@example.com")
	p.sees("dialog .samples", "and 27 more")
	p.click("input[value=not_happened]")
	p.fill("dialog input[name=reason]", "the log of the mail server")
	p.fill("dialog input[name=typed]", "29")
	require.True(t, value[bool](p, `document.querySelector("dialog button.act").disabled`), "the number is wrong")
	// The flight that changes meanwhile is skipped.
	f := s.must("GET", "/v1/flights/"+ids[7], nil)
	s.must("POST", "/v1/flights/"+ids[7]+"/resolve", object{"result": "fail", "reason": "bounced"}, "If-Match", `"`+f["version"].(string)+`"`)
	p.fill("dialog input[name=typed]", "30")
	p.click("dialog button.act")
	p.sees(".toasts", "29 flights decided, 1 skipped because they had changed")
	p.sees(".empty", "Nothing is in doubt with")
	states := map[string]int{}
	for _, id := range ids {
		states[s.must("GET", "/v1/flights/"+id, nil)["state"].(string)]++
	}
	require.Equal(t, map[string]int{"ready": 29, "failed": 1}, states)
	require.Equal(t, "in_doubt", s.must("GET", "/v1/flights?key=default/charge/order-1", nil)["state"])
}

// A hundred thousand flights are searched by the server; the page holds a hundred.
func TestFlights_HundredThousand(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	for part := range 50 {
		var lines strings.Builder
		for i := range 2000 {
			fmt.Fprintf(&lines, `{"key":"default/charge/order-%d","outcome":"succeeded","external_id":"ch_%d"}`+"\n", part*2000+i, part*2000+i)
		}
		s.must("POST", "/v1/flights:import", lines.String(), "Content-Type", "application/x-ndjson", "Flightd-Actor", "test")
	}
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/flights")
	p.until(`document.querySelectorAll(".rows tbody tr").length === 100`)
	first := value[string](p, `document.querySelector(".rows tbody tr").innerText`)
	p.press("n")
	p.until(fmt.Sprintf(`document.querySelectorAll(".rows tbody tr").length === 100 && document.querySelector(".rows tbody tr").innerText !== %q`, first))
	p.press("p")
	p.until(fmt.Sprintf(`document.querySelector(".rows tbody tr") && document.querySelector(".rows tbody tr").innerText.slice(0, 25) === %q.slice(0, 25)`, first))
	p.press("/")
	p.fill("input[type=search]", "order-77123")
	p.press("\r")
	p.until(`document.querySelectorAll(".rows tbody tr").length === 1`) // the server examines 10,000 for an answer, and the page asks on
	p.sees(".rows", "order-77123")
	p.press("j\r")
	p.sees(".says .state", "succeeded")
	p.sees("article", "ch_77123")
}

// A key that is held opens a dialog, and does not decide in it: an approval needs no reason, so nobody would have read what it does.
func TestVerbs_HeldKey(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.must("POST", "/v1/flights:submit", object{"action": "refund", "id": "order-0", "input": object{}, "approval": object{"expires_ms": 3600000}})
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/approvals")
	p.sees(".detail h2", "refund/order-0")
	enter := input.DispatchKeyEvent(input.KeyDown).WithKey("Enter").WithCode("Enter").WithText("\r").WithWindowsVirtualKeyCode(13)
	held := *enter
	held.AutoRepeat = true
	p.do(chromedp.Focus("[data-verb=approve]", chromedp.ByQuery), enter)
	p.until(`document.querySelector("dialog")`)
	p.do(&held, &held, chromedp.Evaluate(`new Promise((done) => setTimeout(done, 300))`, nil, awaitPromise))
	require.Equal(t, "awaiting_approval", s.must("GET", "/v1/flights?key=default/refund/order-0", nil)["state"])
	p.do(input.DispatchKeyEvent(input.KeyUp).WithKey("Enter"), enter)
	p.until(`!document.querySelector("dialog")`)
	require.NotEqual(t, "awaiting_approval", s.must("GET", "/v1/flights?key=default/refund/order-0", nil)["state"])
}

// between is an address at which a handler stands before the server.
func (s *server) between(handle func(w http.ResponseWriter, r *http.Request, node http.Handler)) *server {
	s.t.Helper()
	target, err := url.Parse(s.url)
	require.NoError(s.t, err)
	node := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, node) }))
	s.t.Cleanup(proxy.CloseClientConnections)
	return &server{t: s.t, url: proxy.URL}
}

// A decision about many that fails in the middle says how far it came, and goes on from there, also where only the answer was lost. A dialog
// that is closed meanwhile stops it, and says the same.
func TestVerbs_AboutManyInPart(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	for i := range 20 {
		s.doubt("mail", fmt.Sprint("case-", i), nil)
	}
	var decisions atomic.Int32
	var again atomic.Bool
	gate := make(chan bool)
	proxy := s.between(func(w http.ResponseWriter, r *http.Request, node http.Handler) {
		if r.Method != http.MethodPost {
			node.ServeHTTP(w, r)
			return
		}
		switch n := decisions.Add(1); {
		case again.Load():
			<-gate
			node.ServeHTTP(w, r)
		case n <= 6:
			node.ServeHTTP(w, r)
		default:
			if n == 7 {
				node.ServeHTTP(httptest.NewRecorder(), r)
			}
			http.Error(w, `{"code":"forbidden","title":"The token does not allow this"}`, http.StatusForbidden)
		}
	})
	inDoubt := func() int {
		return len(s.must("GET", "/v1/flights?state=in_doubt", nil)["flights"].([]any))
	}
	p := openTab(t, 1280, 800, false)
	p.failedRequests = true
	p.visit(proxy.url + "/console/#/doubts")
	p.until(`document.querySelectorAll(".item").length === 20`)
	p.press("*R")
	p.click("input[value=not_happened]")
	p.fill("dialog input[name=reason]", "the log of the mail server")
	p.fill("dialog input[name=typed]", "20")
	p.click("dialog button.act")
	p.sees("dialog .problem", "forbidden")
	p.sees("dialog .buttons", "6 flights decided, 14 left")
	require.Equal(t, 13, inDoubt())

	again.Store(true)
	p.click("dialog button.act")
	p.until(`document.querySelector("dialog button.act").disabled`)
	p.press("\x1b")
	p.until(`!document.querySelector("dialog")`)
	close(gate)
	p.sees(".toasts", "12 flights decided, 8 left") // six before, and six more: the one whose answer was lost is answered as before
	require.Equal(t, 8, inDoubt())
}
