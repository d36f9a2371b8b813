//go:build browser

package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// shop fills a ledger with what a small shop has on a bad day.
func shop(s *server) {
	amount := func(cents int) object {
		return object{"amount": cents, "currency": "EUR", "customer": fmt.Sprintf("c-%d", cents%97)}
	}
	for i := range 24 {
		s.succeed("charge", fmt.Sprintf("order-%d", 4100+i), amount(990+113*i), object{"id": fmt.Sprintf("ch_%d", 88310+i), "paid": true})
	}
	for i := range 5 {
		s.doubt("charge", fmt.Sprintf("order-%d", 4200+i), amount(2990+500*i))
	}
	s.doubt("mail", "invoice-2026-0117", object{"to": "ann@example.com", "template": "invoice"})
	for range 3 {
		s.open("charge", "order-4200", amount(2990), nil)
	}
	s.open("charge", "order-4202", amount(3990), nil)
	late := s.open("charge", "order-4150", amount(7700), object{"recovery": "resend", "provider_window_ms": 3600000})
	s.report(late, object{"outcome": "unknown", "error": "the provider answered 502"})
	again := s.open("charge", "order-4150", amount(7700), nil)
	s.report(again, object{"outcome": "succeeded", "external_id": "ch_88402", "body": object{"id": "ch_88402"}})
	s.report(s.open("charge", "order-4151", amount(100000), nil), object{"outcome": "refused", "error": "card_declined", "body": object{"error": "card_declined"}})
	s.open("render", "film-7", object{"scene": "intro"}, object{"ttl_ms": 300000}) // it runs
	for i, who := range []string{"Bea", "shop-backend", "Cem"} {
		s.must("POST", "/v1/flights:submit", object{"action": "refund", "id": fmt.Sprintf("order-%d", 4031+i), "input": amount(4200 * (i + 1)), "recovery": "resend", "provider_window_ms": 86400000, "approval": object{"expires_ms": 3600000 * (1 + 4*i)}}, "Flightd-Actor", who)
	}
	for i := range 4 {
		s.must("POST", "/v1/flights:submit", object{"action": "export", "id": fmt.Sprintf("day-%d", i), "input": object{"day": i}, "lane": "warehouse"})
	}
	s.must("POST", "/v1/flights:submit", object{"action": "reminder", "id": "order-4111", "input": amount(1200), "delay_ms": 7200000})
}

// picturePages are the pages of the pictures, by the name of the file.
var picturePages = []struct{ name, address, ready string }{
	{"doubts", "#/doubts", `document.querySelector(".timeline") && document.querySelectorAll(".item").length === 6`},
	{"approvals", "#/approvals", `document.querySelector(".timeline") && document.querySelectorAll(".item").length === 3`},
	{"flights", "#/flights", `document.querySelectorAll(".rows tbody tr").length > 30`},
	{"flight", "#/flight?namespace=default&key=default%2Fcharge%2Forder-4150", `document.querySelector(".timeline")`},
}

// pictureDir is the directory for the pictures of the guide. It skips the test if the variable is not set: other tests check the pages.
func pictureDir(t *testing.T) string {
	dir := os.Getenv("FLIGHTD_SCREENSHOTS")
	if dir == "" {
		t.Skip("FLIGHTD_SCREENSHOTS is not set: make screenshots sets it")
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// TestScreenshots writes the pictures of the pages.
func TestScreenshots(t *testing.T) {
	dir, s := pictureDir(t), startDev(t)
	shop(s)
	for _, look := range []struct {
		suffix        string
		width, height int64
		dark          bool
		also          string // the page that has this look in the guide
	}{{"", 1280, 800, false, ""}, {"-dark", 1280, 800, true, "flights"}, {"-phone", 390, 844, false, "doubts"}} {
		p := openTab(t, look.width, look.height, look.dark)
		for _, page := range picturePages {
			p.visit(s.url + "/console/" + page.address)
			if look.suffix == "-phone" && (page.name == "doubts" || page.name == "approvals") {
				p.until(`document.querySelectorAll(".item").length > 0`)
			} else {
				p.until(page.ready)
			}
			if look.suffix == "" || page.name == look.also {
				p.picture(filepath.Join(dir, "console-"+page.name+look.suffix+".png"))
			}
		}
		p.visit(s.url + "/console/#/doubts")
		p.until(`document.querySelector(".item a")`)
		p.do(chromedp.Evaluate(`document.querySelector(".item a").click()`, nil))
		p.click("[data-verb=resolve]")
		p.click("input[value=happened]")
		p.fill("dialog textarea[name=receipt]", `{"id": "ch_88417", "paid": true}`)
		p.fill("dialog input[name=reason]", "the bank statement of today")
		p.fill("dialog input[name=actor]", "Ann")
		if look.suffix == "" {
			p.picture(filepath.Join(dir, "console-resolve.png"))
		}
	}
}

// violations are what axe-core finds of serious and critical faults.
func violations(p *testBrowser) []string {
	p.t.Helper()
	axe, err := os.ReadFile("../../tools/console/node_modules/axe-core/axe.min.js")
	require.NoError(p.t, err, "run `make console-test`, which installs it")
	var found string
	p.do(chromedp.Evaluate(string(axe)+"; 0", nil), chromedp.Evaluate(`axe.run().then((r) => JSON.stringify(r.violations.filter((v) => ["serious", "critical"].includes(v.impact)).flatMap((v) => v.nodes.map((n) => v.id + " " + n.target.join(" ") + ": " + n.failureSummary))))`,
		&found, awaitPromise))
	var all []string
	require.NoError(p.t, json.Unmarshal([]byte(found), &all))
	return all
}

func TestPages_AreAccessibleAndFit(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	shop(s)
	pages := map[string]string{"empty": "#/flights?state=cancelled", "absent": "#/flight?key=default%2Fcharge%2Fnobody"}
	for _, p := range picturePages {
		pages[p.name] = p.address
	}
	for _, look := range []struct {
		width int64
		dark  bool
	}{{1280, false}, {390, true}} {
		p := openTab(t, look.width, 844, look.dark)
		require.Equal(t, look.dark, value[bool](p, `matchMedia("(prefers-color-scheme: dark)").matches`))
		for name, address := range pages {
			p.visit("about:blank")
			p.visit(s.url + "/console/" + address)
			p.until(`document.querySelector("main h1, main h2, main .problem")`)
			p.until(`!document.querySelector("[aria-busy=true]")`)
			require.Empty(t, violations(p), "%s at %d pixels", name, look.width)
			require.LessOrEqual(t, value[int64](p, `document.documentElement.scrollWidth`), look.width, "%s scrolls sideways", name)
		}
		p.visit(s.url + "/console/#/doubts")
		p.until(`document.querySelector(".item")`)
		p.press("?")
		p.sees("dialog", "the next flight")
		require.Empty(t, violations(p), "the keys")
	}
}

// A key, an input, a cause and a reason may hold anything; a page must show them as text.
func TestMarkup_StaysText(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	const attack = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>&lt;b&gt;${1}`
	const id = `<img/src=x/onerror="document.title='owned'">&lt;b&gt;${1}`
	opened := s.open("charge", id, object{"note": attack}, object{"owner": attack})
	f := s.report(opened, object{"outcome": "unknown", "error": attack})
	require.Equal(t, "in_doubt", f["state"])
	p := openTab(t, 1280, 800, false)
	p.visit(link(s, "default", f["key"].(string)))
	p.sees(".timeline", attack)
	p.sees("pre", `<img src=x`)
	p.press("r")
	p.click("input[value=fail]")
	p.fill("dialog input[name=reason]", attack)
	p.click("dialog button.act")
	p.sees(".says .state", "failed")
	p.sees(".timeline", "resolved it (it did not happen and must not run: "+attack)
	p.visit(s.url + "/console/#/flights")
	p.sees(".rows", "charge/"+id)
	require.Contains(t, value[string](p, `document.title`), "flightd")
	require.Zero(t, value[int](p, `document.querySelectorAll("main img, main script").length`))

	// A receipt of thousands of brackets is laid out, and does not grow to a hundred million characters.
	var length int
	p.do(chromedp.Evaluate(`import("/console/words.js").then(({ indent }) => indent("[".repeat(9000) + "]".repeat(9000)).length)`, &length, awaitPromise))
	require.Less(t, length, 2<<20)
}

// The fields of the search say what the list shows, also on the way back; and the first page has none before it.
func TestFlights_WayBack(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.doubt("charge", "order-1", nil)
	s.doubt("charge", "order-2", nil)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/flights")
	p.until(`document.querySelectorAll(".rows tbody tr").length === 2`)
	p.fill("input[type=search]", "order-1")
	p.press("\r")
	p.until(`document.querySelectorAll(".rows tbody tr").length === 1`)
	p.press("p")
	p.do(chromedp.Evaluate(`new Promise((done) => setTimeout(done, 300))`, nil, awaitPromise))
	require.Equal(t, "#/flights?contains=order-1", value[string](p, `location.hash`))
	p.do(chromedp.NavigateBack())
	p.until(`document.querySelectorAll(".rows tbody tr").length === 2`)
	require.Empty(t, value[string](p, `document.querySelector("input[type=search]").value`))
}
