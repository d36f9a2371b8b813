//go:build browser

package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

const (
	longAction = "warehouse.shipments.international.customs-declarations.submit-to-broker-21"
	markupID   = `<b>order</b>&amp;"7"`
)

var longID = strings.Repeat("shipment-2026-11-28/", 10)[:199] + "7"

// edges fills a ledger with data that is hard to show: a long action, a long key, many doubts, markup in a key, and a saga that waits
// for an approval.
func edges(s *server) {
	s.t.Helper()
	for i := range 97 {
		s.doubt(longAction, fmt.Sprintf("parcel-%d", i), object{"parcel": i})
	}
	s.doubt("charge", "order-1", object{"cents": 1})
	s.doubt("charge", longID, object{"cents": 200})
	s.doubt("charge", markupID, object{"note": markupID})
	payout(s)
}

// payout starts a saga that waits for an approval.
func payout(s *server) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "payout.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte(`saga: payout
steps:
  check: { action: account.check, no_undo: true, input: {$from: /input} }
  sign:  { approval: { expires: 2h }, needs: [check] }
  send:  { action: payout.send, needs: [sign], no_undo: true }
`), 0o600))
	s.cli("sagas", "apply", file)
	s.worker(`echo '{"ok": true}'`, "account.check", "payout.send", "--failure", "refused")
	s.must("POST", "/v1/sagas:start", object{"saga": "payout", "id": "p-1", "input": object{"iban": "DE02", "cents": 199900}})
	s.awaits("/v1/approvals", func(a object) bool { return len(a["flights"].([]any)) == 1 })
}

// box is the place of an element in the window.
func (tb *testBrowser) box(selector string) (b struct{ Left, Right, Top, Bottom float64 }) {
	tb.t.Helper()
	tb.do(chromedp.Evaluate(fmt.Sprintf(`(({ left, right, top, bottom }) => ({ left, right, top, bottom }))(document.querySelector(%q).getBoundingClientRect())`, selector), &b))
	return b
}

// Long actions and keys stay inside their columns, and no page scrolls sideways.
func TestEdges_Fit(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	edges(s)
	for _, width := range []int64{1280, 390} {
		p := openTab(t, width, 844, false)
		for _, address := range []string{"#/doubts", "#/flights", "#/queues", "#/saga?key=default%2Fpayout%2Fp-1", "#/flight?key=default%2Fcharge%2F" + strings.ReplaceAll(longID, "/", "%2F")} {
			p.visit("about:blank")
			p.visit(s.url + "/console/" + address)
			p.until(`document.querySelector(".item, .rows tr, .timeline")`)
			require.LessOrEqual(t, value[int64](p, `document.documentElement.scrollWidth`), width, address)
			if width == 390 { // at 1280 pixels, other tests look
				require.Empty(t, violations(p), "%s at %d pixels", address, width)
			}
			if address == "#/doubts" {
				require.LessOrEqual(t, p.box(".filters select").Right, p.box(".list").Right+.5)
				p.sees(".list h1", "100, the oldest")
				require.Zero(t, value[int](p, `document.querySelectorAll("main img, main script, .item b b").length`))
			}
		}
	}
}

// After the last doubt of a filter was decided, the list names the filter and leads to the other doubts; a person without a name is unnamed.
func TestEdges_LastOfAFilter(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.doubt("charge", "order-1", nil)
	s.doubt("mail", "case-1", nil)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/doubts?action=mail")
	p.sees(".detail h2", "mail/case-1")
	p.press("r")
	p.click("input[value=fail]")
	p.fill("dialog input[name=reason]", "the log")
	p.click("dialog button.act")
	p.sees(".empty", "Nothing is in doubt with the action mail")
	require.Equal(t, "mail", value[string](p, `document.querySelector(".filters select").value`))
	p.sees(".detail .timeline", "an unnamed person resolved it")
	p.sees(".detail .facts", "must not run, by an unnamed person the log")
	p.click(".empty a")
	p.sees(".item", "charge/order-1")
	p.fill("input[type=search]", "nothing")
	p.sees(".empty", "Nothing is in doubt with this text in its key")
}

// A page of something that does not exist names it, and leads on.
func TestEdges_Absent(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.succeed("charge", "order-1", nil, object{"id": "ch_17"})
	p := openTab(t, 1280, 800, false)
	for address, key := range map[string]string{
		"#/flight?id=fl_aaaaaaaaaaaaaaaaaaaaaaaaaa": "fl_aaaaaaaaaaaaaaaaaaaaaaaaaa", "#/saga?id=fl_aaaaaaaaaaaaaaaaaaaaaaaaaa": "fl_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		"#/flight?namespace=default&key=default%2Fpay%2Forder-1": "default/pay/order-1", "#/saga?key=default%2Ftrip%2Fb-1": "default/trip/b-1",
	} {
		p.visit("about:blank")
		p.visit(s.url + "/console/" + address)
		p.sees("h1.key", key)
		p.until(`document.querySelector("main p a")`)
	}
	p.visit(s.url + "/console/#/flight?namespace=default&key=default%2Fpay%2Forder-1")
	p.sees("h1.key", "default/pay/order-1")
	p.click("main p a")
	p.sees(".rows", "charge/order-1")

	// The search finds the external id of a receipt, and a saga by its key.
	p.fill("input[type=search]", "ch_order-1")
	p.press("\r")
	p.sees(".empty", "No flight matches")
	p.click(".hint a")
	p.sees(".rows", "charge/order-1")
	require.Equal(t, "#/flights?external_id=ch_order-1", value[string](p, `location.hash`))
}

// The page of a saga has its input and a bar for the wait for an approval; the page of a flight copies input, receipt and command.
func TestEdges_SagaAndCopies(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	payout(s)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/sagas")
	p.fill("input[type=search]", "default/payout/p-1")
	p.press("\r")
	p.sees("pre", `"iban": "DE02"`)
	p.until(`document.querySelector("[data-step=sign] .track .approval")`)
	waiting := p.box("[data-step=sign] .track .approval")
	require.Greater(t, waiting.Right-waiting.Left, 10.)
	s.cli("approvals", "approve", "payout/p-1#sign", "--reason", "checked", "--yes")
	p.sees(".says .state", "done")
	decided := p.box("[data-step=sign] .track .approval")
	require.Greater(t, decided.Right-decided.Left, 3.)
	require.LessOrEqual(t, decided.Right, p.box("[data-step=send] .track .try.succeeded").Left+1)

	id := s.succeed("charge", `it's`, object{"cents": 1}, object{"id": "ch_17"})
	p.visit(s.url + "/console/#/flight?id=" + id)
	for _, what := range []string{"key", "id", "input", "receipt", "command"} {
		p.until(fmt.Sprintf(`document.querySelector("button[aria-label='Copy %s']")`, what))
	}
	p.sees(".facts code", `flightd why 'default/charge/it'\''s'`)
	p.do(chromedp.Evaluate(`navigator.clipboard.writeText = (text) => Promise.resolve(window.copied = text); document.querySelector("button[aria-label='Copy receipt']").click()`, nil))
	require.JSONEq(t, `{"id": "ch_17"}`, value[string](p, `window.copied`))
}

// The banner about a server that does not answer is at the top of the window, and the charts go back for as long as is asked.
func TestEdges_DeadServer(t *testing.T) {
	t.Parallel()
	port := fmt.Sprint(proctest.Ports(t))
	s := &server{t: t, url: "http://127.0.0.1:" + port}
	node := s.run("dev", "dev", "--data", t.TempDir(), "--listen", "127.0.0.1:"+port)
	s.doubt("charge", "order-1", nil)
	p := openTab(t, 390, 844, false)
	p.failedRequests = true
	p.visit(s.url + "/console/#/live")
	p.sees(".feed", "charge/order-1")
	points := value[int](p, `+document.querySelector(".plot").dataset.points`)
	p.do(chromedp.SetValue(`select[aria-label="Time that is shown"]`, "60", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector("main select").dispatchEvent(new Event("change", { bubbles: true }))`, nil))
	p.until(fmt.Sprintf(`+document.querySelector(".plot").dataset.points === %d`, 12*points))
	require.Equal(t, "#/live?minutes=60", value[string](p, `location.hash`))
	p.visit(s.url + "/console/#/doubts")
	p.sees(".item", "charge/order-1")
	node.Kill()
	p.until(`document.querySelector(".offline.on")`)
	banner := p.box(".offline")
	require.Less(t, banner.Top, 130.)
	require.InDelta(t, p.box(".bar").Bottom, banner.Top, 1)
	require.GreaterOrEqual(t, p.box("main").Top, banner.Bottom-1)
}
