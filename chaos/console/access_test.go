//go:build browser

package console

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// startServe starts flightd serve, which asks for tokens. The server's token is that of an administrator.
func startServe(t *testing.T) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, data: filepath.Join(dir, "data")}
	first, port := filepath.Join(dir, "first-token"), proctest.Ports(t)
	init, err := proctest.Start(proctest.Spec{Name: "init", Path: flightd, Args: []string{"serve", "--init", "--data", s.data, "--first-token-file", first}, Env: environment(t)})
	require.NoError(t, err)
	<-init.Ended()
	require.NoError(t, init.Err())
	s.run("serve", "serve", "--data", s.data, "--listen", "127.0.0.1:"+strconv.Itoa(port))
	s.url = "http://127.0.0.1:" + strconv.Itoa(port)
	token, err := os.ReadFile(first)
	require.NoError(t, err)
	s.token = strings.TrimSpace(string(token))
	return s
}

// newToken makes a token.
func (s *server) newToken(name, namespace string, verbs ...string) string {
	s.t.Helper()
	return s.must("POST", "/v1/tokens", object{"name": name, "namespace": namespace, "verbs": verbs, "reason": "test"})["token"].(string)
}

func (tb *testBrowser) signIn(token string, keep bool) {
	tb.t.Helper()
	tb.until(`document.querySelector("input[name=token]")`)
	tb.fill("input[name=token]", token)
	if keep {
		tb.click("input[name=keep]")
	}
	tb.click("form.signin button.act")
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	s.doubt("charge", "order-1", object{"cents": 1})
	reader := s.newToken("reader", "default", "read")
	p := openTab(t, 1280, 800, false)
	p.visit(link(s, "default", "default/charge/order-1"))
	p.until(`document.querySelector("form.signin") && !document.querySelector(".problem")`)
	require.Empty(t, violations(p))
	p.signIn("fltd_wrong", false)
	p.sees(".problem", "unauthenticated")
	p.sees(".problem", "The token is not accepted")

	// A token that reads sees, and is offered nothing.
	p.signIn(reader, false)
	p.sees(".says .state", "in doubt") // the link is still the page
	p.sees(".verbs", "a token that has the verb operate")
	require.Zero(t, value[int](p, `document.querySelectorAll(".verbs button").length`))
	p.sees("footer", "reader, read")
	require.Empty(t, value[string](p, `JSON.stringify([...Object.keys(localStorage), ...Object.entries(sessionStorage).flat()].filter((x) => x.startsWith("fltd_") || x === "token")).slice(1, -1)`))
	p.do(chromedp.Reload())
	p.until(`document.querySelector("form.signin")`) // it was kept in memory

	// A token that ends while the page is open leads back to the sign-in, with the reason.
	p.signIn(s.newToken("short", "*", "read", "operate"), true)
	p.sees(".says .state", "in doubt")
	p.do(chromedp.Reload())
	p.sees(".says .state", "in doubt") // it was kept for the tab
	s.must("DELETE", "/v1/tokens/*/short", object{"reason": "test"})
	p.until(`document.querySelector("form.signin")`)
	p.sees(".problem", "unauthenticated")
	require.False(t, value[bool](p, `sessionStorage.getItem("token") !== null`))

	// A token that operates decides, and the history has its name.
	p.do(chromedp.Evaluate(`sessionStorage.setItem("token", "fltd_of_yesterday")`, nil), chromedp.Reload())
	p.signIn(s.newToken("oncall", "*", "read", "operate"), false)
	p.decide("resolve", "fail", "the bank says no")
	p.sees(".timeline", "token */oncall")
	require.False(t, value[bool](p, `sessionStorage.getItem("token") !== null`), "the token that was kept before")

	// A late answer to an earlier token does not end the sign-in.
	var stays bool
	p.do(chromedp.Evaluate(`import("/console/api.js").then(async ({ session, get }) => {
		const ask = fetch, token = session.token;
		let answer;
		window.fetch = (path, ...rest) => path === "/late" ? new Promise((done) => answer = done) : ask(path, ...rest);
		session.token = "fltd_earlier";
		const asked = get("/late").catch(() => {});
		session.token = token;
		answer(new Response('{"code":"unauthenticated"}', { status: 401 }));
		await asked;
		window.fetch = ask;
		return session.who !== null;
	})`, &stays, awaitPromise))
	require.True(t, stays)
	p.do(clickText("Sign out"))
	p.until(`document.querySelector("form.signin")`)
	require.Empty(t, value[string](p, `document.querySelector("input[name=token]").value`))
}

// clickText clicks the first link or button with a text.
func clickText(text string) chromedp.Action {
	return chromedp.Evaluate(`[...document.querySelectorAll("a, button")].find((e) => e.innerText === `+strconv.Quote(text)+`).click()`, nil)
}

// The first answer to a decision is lost, as when a leader dies after it has written the decision, and the second one is a proxy's: the page
// sends the decision again, with the version that the person saw, and gets the answer of the first.
func TestDecision_IsRepeatedWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	id := s.doubt("charge", "order-1", nil)
	var posts atomic.Int32
	proxy := s.between(func(w http.ResponseWriter, r *http.Request, node http.Handler) {
		if r.Method != http.MethodPost || posts.Add(1) > 2 {
			node.ServeHTTP(w, r)
			return
		}
		node.ServeHTTP(httptest.NewRecorder(), r)
		if posts.Load() == 2 {
			_, _ = w.Write([]byte(`<html>`))
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"code":"leader_lost","title":"The leader was lost","status":503,"retryable":true,"retry_after_ms":50}`))
	})
	p := openTab(t, 1280, 800, false)
	p.failedRequests = true
	p.visit(link(proxy, "default", "default/charge/order-1"))
	p.decide("resolve", "not_happened", "looked it up")
	p.sees(".says .state", "ready")
	require.EqualValues(t, 3, posts.Load())
	resolved := 0
	for _, e := range s.must("GET", "/v1/flights/"+id+"/events", nil)["events"].([]any) {
		if e.(object)["kind"] == "resolved" {
			resolved++
		}
	}
	require.Equal(t, 1, resolved)
}

// A token that ends while a decision is written takes nothing of it away.
func TestDecision_SurvivesTheEndOfTheToken(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	s.doubt("charge", "order-1", nil)
	first, second := s.newToken("first", "*", "read", "operate"), s.newToken("second", "*", "read", "operate")
	p := openTab(t, 1280, 800, false)
	p.visit(link(s, "default", "default/charge/order-1"))
	p.signIn(first, false)
	p.click("[data-verb=resolve]")
	p.click("input[value=happened]")
	p.fill("dialog textarea[name=receipt]", `{"id": "ch_17"}`)
	p.fill("dialog input[name=reason]", "the bank statement shows it")
	s.must("DELETE", "/v1/tokens/*/first", object{"reason": "test"})
	p.until(`document.querySelector("form.signin")`)
	p.signIn(second, false)
	p.click("[data-verb=resolve]")
	p.until(`document.querySelector("dialog input[value=happened]").checked`)
	p.click("dialog button.act")
	p.sees(".says .state", "succeeded")
	p.sees("pre", `"id": "ch_17"`)
	p.sees(".timeline", "the bank statement shows it")
}

// A node that has stopped in the middle accepts requests, and answers none: the page says so, and goes on when the node does.
func TestPage_OfASilentNode(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.doubt("charge", "order-1", nil)
	var silent atomic.Bool
	proxy := s.between(func(w http.ResponseWriter, r *http.Request, node http.Handler) {
		if silent.Load() {
			<-r.Context().Done()
			return
		}
		node.ServeHTTP(w, r)
	})
	p := openTab(t, 1280, 800, false)
	p.visit(proxy.url + "/console/#/doubts")
	p.sees(".detail h2", "charge/order-1")
	p.do(chromedp.Evaluate(`{ const timeout = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = () => timeout(500) }`, nil))
	silent.Store(true)
	p.sees(".offline", "The server does not answer")
	p.sees(".list .problem", "the last answer is shown")
	silent.Store(false)
	p.until(`!document.querySelector(".list .problem") && !document.querySelector(".offline.on")`)
}
