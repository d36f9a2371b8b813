//go:build browser

package console

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
func (s *server) newToken(name, namespace string, expires time.Duration, verbs ...string) string {
	s.t.Helper()
	body := object{"name": name, "namespace": namespace, "verbs": verbs, "reason": "test"}
	if expires > 0 {
		body["expires_in_ms"] = expires.Milliseconds()
	}
	return s.must("POST", "/v1/tokens", body)["token"].(string)
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
	reader := s.newToken("reader", "default", 0, "read")
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
	p.signIn(s.newToken("short", "*", 8*time.Second, "read", "operate"), true)
	p.sees(".says .state", "in doubt")
	p.do(chromedp.Reload())
	p.sees(".says .state", "in doubt") // it was kept for the tab
	p.until(`document.querySelector("form.signin")`)
	p.sees(".problem", "unauthenticated")
	require.False(t, value[bool](p, `sessionStorage.getItem("token") !== null`))

	// A token that operates decides, and the history has its name.
	p.do(chromedp.Evaluate(`sessionStorage.setItem("token", "fltd_of_yesterday")`, nil), chromedp.Reload())
	p.signIn(s.newToken("oncall", "*", 0, "read", "operate"), false)
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

// The node that leads dies while the page is open: the page goes on at its own node, and a decision that was made in between counts.
func TestCluster_ChangeOfLeader(t *testing.T) {
	t.Parallel()
	s := startDev(t, "--nodes", "3")
	s.doubt("charge", "order-1", object{"cents": 1})
	leader, _ := s.must("GET", "/v1/cluster", nil)["leader"].(string)
	require.NotEmpty(t, leader)
	number, err := strconv.Atoi(strings.TrimPrefix(leader, "node-"))
	require.NoError(t, err)
	port, err := strconv.Atoi(s.url[strings.LastIndex(s.url, ":")+1:])
	require.NoError(t, err)
	other := &server{t: t, url: "http://127.0.0.1:" + strconv.Itoa(port+number%3)} // the node after the leader

	p := openTab(t, 1280, 800, false)
	p.failedRequests = true
	p.visit(link(other, "default", "default/charge/order-1"))
	p.sees(".says .state", "in doubt")
	text, err := os.ReadFile(filepath.Join(s.data, leader, "flightd.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	process, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	p.decide("resolve", "not_happened", "looked it up")
	p.sees(".says .state", "ready")
	p.until(`!document.querySelector("main .problem") && !document.querySelector(".offline.on")`)
	require.Equal(t, "ready", other.must("GET", "/v1/flights?key=default/charge/order-1", nil)["state"])
}

// The answer to a decision is lost twice, as when a leader dies after it has written the decision: the page sends it again, with the
// version that the person saw, and gets the answer of the first.
func TestDecision_IsRepeatedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	id := s.doubt("charge", "order-1", nil)
	target, err := url.Parse(s.url)
	require.NoError(t, err)
	node, lost := httputil.NewSingleHostReverseProxy(target), new(atomic.Int32)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && lost.Add(1) <= 2 {
			node.ServeHTTP(httptest.NewRecorder(), r)
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"code":"leader_lost","title":"The leader was lost","status":503,"retryable":true,"retry_after_ms":50}`))
			return
		}
		node.ServeHTTP(w, r)
	}))
	defer between.Close()
	p := openTab(t, 1280, 800, false)
	p.failedRequests = true
	p.visit(link(&server{url: between.URL}, "default", "default/charge/order-1"))
	p.decide("resolve", "not_happened", "looked it up")
	p.sees(".says .state", "ready")
	require.EqualValues(t, 3, lost.Load())
	history := s.must("GET", "/v1/flights/"+id+"/events", nil)["events"].([]any)
	resolved := 0
	for _, e := range history {
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
	first, second := s.newToken("first", "*", 0, "read", "operate"), s.newToken("second", "*", 0, "read", "operate")
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

// An answer to a decision that is cut off, or that is a proxy's, is asked for again.
func TestDecision_IsRepeatedAfterABrokenAnswer(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.doubt("charge", "order-1", nil)
	var posts atomic.Int32
	proxy := s.between(func(w http.ResponseWriter, r *http.Request, node http.Handler) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			node.ServeHTTP(httptest.NewRecorder(), r)
			_, _ = w.Write([]byte(`<html>`))
			return
		}
		node.ServeHTTP(w, r)
	})
	p := openTab(t, 1280, 800, false)
	p.visit(link(proxy, "default", "default/charge/order-1"))
	p.decide("resolve", "not_happened", "looked it up")
	p.sees(".says .state", "ready")
	require.EqualValues(t, 2, posts.Load())
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
