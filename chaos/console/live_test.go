//go:build browser

package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// hide makes the page believe that its tab is hidden, or seen.
func (tb *testBrowser) hide(hidden bool) {
	tb.t.Helper()
	tb.do(chromedp.Evaluate(fmt.Sprintf(`Object.defineProperty(document, "hidden", { value: %v, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`, hidden), nil))
}

// times is how often the feed names a key.
func (tb *testBrowser) times(id string) int {
	tb.t.Helper()
	return value[int](tb, fmt.Sprintf(`[...document.querySelectorAll(".feed li.reported .key")].filter((e) => e.innerText === %q).length`, id))
}

func TestLive(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.succeed("charge", "before", object{}, "ok")
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/live")
	p.until(`document.querySelectorAll(".chart canvas").length === 4`)
	p.sees(".feed", "charge/before") // what has happened in the last minutes
	height := value[int](p, `document.querySelector("main").offsetHeight`)
	for i := range 60 {
		s.succeed("charge", fmt.Sprint("order-", i), object{}, "ok")
	}
	s.report(s.open("charge", "declined", object{}, nil), object{"outcome": "refused", "body": "no"})
	s.open("charge", "order-1", object{}, nil)
	s.doubt("charge", "lost", object{})
	p.sees(".feed .in_doubt", "is in doubt")
	p.sees(".feed .duplicates", "1 duplicate call answered")
	p.until(`["attempts ended", "in doubt"].every((name) => [...document.querySelectorAll(".number")].some((n) => n.innerText.startsWith(name) && parseFloat(n.querySelector("b").innerText) > 0))`)
	p.until(`[...document.querySelectorAll(".number")].some((n) => n.innerText.startsWith("an attempt takes") && n.innerText.includes("ms"))`)
	require.LessOrEqual(t, value[int](p, `document.querySelectorAll(".feed li").length`), 40, "the memory of the page is bounded")
	require.Equal(t, height, value[int](p, `document.querySelector("main").offsetHeight`), "the layout jumps")

	// A hidden tab reads nothing; afterwards it goes on after the last event, and neither misses one nor counts one twice.
	p.hide(true)
	s.succeed("charge", "unseen", object{}, "ok")
	p.do(chromedp.Evaluate(`new Promise((done) => setTimeout(done, 1500))`, nil, awaitPromise))
	require.Zero(t, p.times("charge/unseen"))
	p.hide(false)
	p.sees(".feed", "charge/unseen")
	s.succeed("charge", "after", object{}, "ok")
	p.sees(".feed", "charge/after")
	require.Equal(t, 1, p.times("charge/unseen"))
	require.Equal(t, 1, p.times("charge/declined"))
}

// A chart has a gap, and not a zero, where the page knows nothing: the newest thousand events of a busy feed say nothing of the minutes
// before them. The page knows what it has seen by itself, however many events there were, and forgets what is older than the charts.
func TestLive_Model(t *testing.T) {
	t.Parallel()
	s := startDev(t) // it ends after the page, whose stream would break off
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/live")
	p.until(`document.querySelector(".chart canvas")`)
	var got map[string]int
	p.do(chromedp.Evaluate(`import("/console/live.js").then(({ newModel }) => {
		const t0 = 1800000000000, event = (ms) => ({ event: "", id: "1." + ms, data: { kind: "reported", outcome: "succeeded", flight_id: "f" + ms, attempt: 1, at: new Date(t0 + ms).toISOString() } });
		const unknown = (m, ms) => m.points(t0 + ms).rates.filter((r) => r[1] === null).length, sum = (m, ms) => m.points(t0 + ms).rates.reduce((n, r) => n + 2 * r[1], 0);
		const quiet = newModel(), busy = newModel(), old = newModel();
		quiet.begin(t0);
		for (let i = 0; i < 3000; i++) quiet.add(event(i * 20));
		busy.begin(t0 + 100000);
		for (let i = 0; i < 1000; i++) busy.add(event(90000 + i * 10));
		old.begin(t0);
		for (let i = 0; i < 1000; i++) old.add(event(i * 2000));
		return { quietUnknown: unknown(quiet, 60000), quiet: sum(quiet, 60000), busyUnknown: unknown(busy, 100000), busy: sum(busy, 100000), old: sum(old, 2000000), told: old.told.length };
	})`, &got, awaitPromise))
	require.Equal(t, map[string]int{"quietUnknown": 0, "quiet": 3000, "busyUnknown": 145, "busy": 1000, "old": 150, "told": 40}, got)
}

// A stream that ends goes on after the last position that it named, also if no event was at that position, and the page says which events
// the log no longer has.
func TestLive_Gap(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	resumed, streams := make(chan string, 10), 0
	proxy := s.between(func(w http.ResponseWriter, r *http.Request, node http.Handler) {
		if r.URL.Path != "/v1/events" {
			node.ServeHTTP(w, r)
			return
		}
		resumed <- r.Header.Get("Last-Event-ID")
		w.Header().Set("Content-Type", "text/event-stream")
		switch streams++; streams {
		case 1:
			fmt.Fprint(w, "retry: 1000\n\n: still here\nid: 5.1\n\n")
		case 2:
			fmt.Fprint(w, "event: gap\nid: 9.2\ndata: {\"after\":\"5.1\",\"until\":\"9.2\"}\n\n")
		default:
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	p := openTab(t, 1280, 800, false)
	p.visit(proxy.url + "/console/#/cluster")
	p.do(chromedp.Evaluate(`{ const set = setTimeout; window.setTimeout = (f, ms) => set(f, ms === 50000 ? 1000 : ms); location.hash = "#/live" }`, nil))
	p.sees(".heading", "the log no longer has the events 5.1 to 9.2")
	for _, position := range []string{"", "5.1", "9.2", "9.2"} { // the third stream is silent, without a heartbeat
		select {
		case got := <-resumed:
			require.Equal(t, position, got)
		case <-time.After(limit):
			require.FailNow(t, "the page does not connect again")
		}
	}
}
