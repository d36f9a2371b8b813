//go:build browser

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// flightd is the binary under test: that of FLIGHTD_TEST_BINARY, or one that is built once.
var flightd string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if flightd = os.Getenv("FLIGHTD_TEST_BINARY"); flightd != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "flightd-console")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	flightd = filepath.Join(dir, "flightd")
	build := exec.Command("go", "build", "-C", "../..", "-o", flightd, "./cmd/flightd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build flightd: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// server is a running flightd.
type server struct {
	t     *testing.T
	url   string
	token string // "": it needs none
	data  string
}

// startDev starts flightd dev with further arguments.
func startDev(t *testing.T, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, data: filepath.Join(dir, "data")}
	port := proctest.Ports(t)
	s.url = "http://127.0.0.1:" + strconv.Itoa(port)
	s.run("dev", append([]string{"dev", "--data", s.data, "--listen", "127.0.0.1:" + strconv.Itoa(port)}, args...)...)
	return s
}

func (s *server) run(name string, args ...string) *proctest.Process {
	s.t.Helper()
	return proctest.Run(s.t, proctest.Spec{Name: name, Path: flightd, Args: args, Env: environment(s.t), Log: filepath.Join(s.t.TempDir(), name+".log")})
}

func environment(t *testing.T) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
}

// object is a JSON object.
type object = map[string]any

// call sends a request as a program does, and returns the answer and its status.
func (s *server) call(method, path string, body any, headers ...string) (object, int) {
	s.t.Helper()
	var sent bytes.Buffer
	switch body := body.(type) {
	case nil:
	case string:
		sent.WriteString(body)
	default:
		encoder := json.NewEncoder(&sent)
		encoder.SetEscapeHTML(false)
		require.NoError(s.t, encoder.Encode(body))
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, &sent)
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	out := object{}
	_ = json.Unmarshal(text, &out) // an answer of lines is not looked at
	return out, answer.StatusCode
}

// must is call with an answer below 400.
func (s *server) must(method, path string, body any, headers ...string) object {
	s.t.Helper()
	out, status := s.call(method, path, body, headers...)
	require.Less(s.t, status, 400, "%s %s: %v", method, path, out)
	return out
}

var nonces atomic.Int64

// open opens a flight, and returns the answer.
func (s *server) open(action, id string, in any, more object) object {
	s.t.Helper()
	body := object{"action": action, "id": id, "input": in, "nonce": fmt.Sprintf("nonce-%016d", nonces.Add(1)), "owner": "web-1:4711", "wait_ms": 0}
	for name, value := range more {
		body[name] = value
	}
	out, _ := s.call("POST", "/v1/flights:open", body)
	return out
}

func (s *server) report(opened object, report object) object {
	s.t.Helper()
	require.Equal(s.t, "proceed", opened["decision"], "%v", opened)
	report["fencing_token"], report["key"] = opened["fencing_token"], opened["key"]
	return s.must("POST", "/v1/flights/"+opened["flight_id"].(string)+"/report", report)
}

// doubt makes a flight in doubt, and returns its id.
func (s *server) doubt(action, id string, in any) string {
	s.t.Helper()
	f := s.report(s.open(action, id, in, nil), object{"outcome": "unknown", "error": "connection lost after sending: no answer within 30 s"})
	require.Equal(s.t, "in_doubt", f["state"])
	return f["id"].(string)
}

func (s *server) succeed(action, id string, in, body any) string {
	s.t.Helper()
	f := s.report(s.open(action, id, in, nil), object{"outcome": "succeeded", "external_id": "ch_" + id, "body": body})
	return f["id"].(string)
}

// testBrowser is a page in a browser of its own. A message of the page in the browser's console, such as a breach of the security policy or an
// exception, fails the test, unless the test expects failed requests.
type testBrowser struct {
	t              *testing.T
	ctx            context.Context
	failedRequests bool // the test takes the server away: the browser reports requests that fail
}

func openTab(t *testing.T, width, height int64, dark bool) *testBrowser {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	require.NoError(t, err, "run `make console-test`, which installs it")
	profile, err := os.MkdirTemp("", "flightd-console-")
	require.NoError(t, err)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.WSURLReadTimeout(limit), chromedp.WindowSize(int(width), int(height)), chromedp.UserDataDir(profile))
	if dark {
		options = append(options, chromedp.Flag("blink-settings", "preferredColorScheme=0"))
	} else {
		options = append(options, chromedp.Flag("blink-settings", "preferredColorScheme=1"))
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // it logs each event that it does not know
	tb := &testBrowser{t: t, ctx: ctx}
	messages := make(chan string, 100)
	chromedp.ListenTarget(ctx, func(e any) {
		text := ""
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Error()
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && !(tb.failedRequests && e.Entry.Source == log.SourceNetwork) && !strings.Contains(e.Entry.Text, "status of 4") {
				text = e.Entry.Text + " " + e.Entry.URL
			}
		}
		if text != "" {
			select {
			case messages <- text:
			default:
			}
		}
	})
	require.NoError(t, chromedp.Run(ctx, chromedp.EmulateViewport(width, height)))
	t.Cleanup(func() {
		for range len(messages) { // before the page is closed, whose streams then break off
			t.Errorf("the page reported: %s", <-messages)
		}
		_ = chromedp.Cancel(ctx) // the browser ends by itself, with all its processes
		stop()
		_ = os.RemoveAll(profile)
	})
	return tb
}

// limit bounds the wait for the page and for the start of its browser. It is generous: a busy machine must not fail a test.
const limit = time.Minute

// do runs actions in the page; one that finds nothing within the limit fails the test.
func (tb *testBrowser) do(actions ...chromedp.Action) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, limit+5*time.Second)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var shown string
		late, stop := context.WithTimeout(tb.ctx, 3*time.Second)
		defer stop()
		_ = chromedp.Run(late, chromedp.Evaluate(`document.body.innerText`, &shown))
		require.NoError(tb.t, err, "the page shows: %s", shown)
	}
}

func (tb *testBrowser) visit(url string) { tb.t.Helper(); tb.do(chromedp.Navigate(url)) }

// sees waits until the text of an element contains the words.
func (tb *testBrowser) sees(selector, words string) {
	tb.t.Helper()
	tb.until(fmt.Sprintf("[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))", selector, words))
}

// until waits until an expression is true.
func (tb *testBrowser) until(expression string) {
	tb.t.Helper()
	tb.do(chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(limit)))
}

// press presses keys, one after the other.
func (tb *testBrowser) press(keys string) {
	tb.t.Helper()
	tb.do(chromedp.KeyEvent(keys))
}

func (tb *testBrowser) click(selector string) {
	tb.t.Helper()
	tb.do(chromedp.Click(selector, chromedp.ByQuery))
}

func (tb *testBrowser) fill(selector, text string) {
	tb.t.Helper()
	tb.do(chromedp.Focus(selector, chromedp.ByQuery), chromedp.Evaluate(`document.activeElement.select()`, nil), input.InsertText(text))
}

// value is that of an expression.
func value[T any](tb *testBrowser, expression string) (out T) {
	tb.t.Helper()
	tb.do(chromedp.Evaluate(expression, &out))
	return out
}

func (tb *testBrowser) picture(file string) {
	tb.t.Helper()
	var png []byte
	tb.do(chromedp.CaptureScreenshot(&png))
	require.NoError(tb.t, os.WriteFile(file, png, 0o644))
}

// awaitPromise makes an evaluation wait for the promise that it returns.
func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
