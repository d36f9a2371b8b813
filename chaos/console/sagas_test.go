//go:build browser

package console

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// cli runs a command of flightd against the server.
func (s *server) cli(args ...string) {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), flightd, args...)
	c.Env = append(environment(s.t), "FLIGHTD_ADDR="+s.url, "FLIGHTD_TOKEN="+s.token)
	out, err := c.CombinedOutput()
	require.NoError(s.t, err, "flightd %v: %s", args, out)
}

// worker starts a worker with a script of sh, until the test ends.
func (s *server) worker(script string, args ...string) {
	s.t.Helper()
	args = append(append([]string{"work", "--server", s.url}, args...), "--", "sh", "-c", script)
	w, err := proctest.Start(proctest.Spec{Name: "worker", Path: flightd, Args: args, Env: environment(s.t), Log: filepath.Join(s.t.TempDir(), "worker.log")})
	require.NoError(s.t, err)
	s.t.Cleanup(w.Kill)
}

// shortcut presses a key that opens a dialog, as a keyboard does: what the page has handled is not typed into the field that gets the focus.
func (tb *testBrowser) shortcut(key string) {
	tb.t.Helper()
	tb.do(input.DispatchKeyEvent(input.KeyRawDown).WithKey(key), input.DispatchKeyEvent(input.KeyUp).WithKey(key))
}

// awaits asks until an answer is as expected.
func (s *server) awaits(path string, ok func(object) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		answer, status := s.call("GET", path, nil, "Flightd-Namespace", "*")
		return status == 200 && ok(answer)
	}, limit, 50*time.Millisecond, path)
}

// agency starts sagas of each kind: b-1 is done, b-2 waits for a person because its airline is on strike, and t-3 has no worker. It returns
// the file that is the strike.
func agency(s *server) (strike string) {
	s.t.Helper()
	dir := s.t.TempDir()
	strike = filepath.Join(dir, "strike")
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(s.t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	write("strike", "")
	s.cli("sagas", "apply", write("trip.yaml", `saga: trip
steps:
  hotel:   { action: hotel.book, input: {$from: /input}, undo: { action: hotel.cancel, input: {room: {$from: /steps/hotel/body/id}} } }
  seat:    { action: seat.book, needs: [hotel], input: {$from: /input}, undo: { action: seat.cancel, input: {pnr: {$from: /steps/seat/body/pnr}} } }
  pay:     { action: pay, needs: [hotel, seat], input: {cents: {$from: /input/cents}}, pivot: true }
  voucher: { action: voucher, needs: [pay], input: {to: {$from: /input/mail}} }
`))
	s.cli("sagas", "apply", write("tour.yaml", "saga: tour\nsteps:\n  bus: { action: bus.book, no_undo: true }\n"))
	s.worker(`sleep .2; case $FLIGHTD_KEY in *b-2#pay) echo '"declined"'; exit 3;; *.undo) [ ! -e `+strike+` ] || exit 3;; esac; echo '{"id": "room_17", "pnr": "X7"}'`,
		"hotel.book", "seat.book", "pay", "voucher", "hotel.cancel", "seat.cancel", "--failure", "refused")
	for _, saga := range [][2]string{{"trip", "b-1"}, {"trip", "b-2"}, {"tour", "t-3"}} {
		s.must("POST", "/v1/sagas:start", object{"saga": saga[0], "id": saga[1], "input": object{"cents": 1999, "mail": "ann@example.com"}})
	}
	for _, state := range []string{"done", "in_doubt"} {
		s.awaits("/v1/sagas?state="+state, func(a object) bool { return len(a["sagas"].([]any)) == 1 })
	}
	return strike
}

func TestSagas(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	strike := agency(s)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/sagas")
	p.until(`document.querySelectorAll(".rows tbody tr").length === 3`)
	p.click(".chips label:nth-of-type(5) input")
	p.until(`document.querySelectorAll(".rows tbody tr").length === 1 && location.hash === "#/sagas?state=done"`)
	p.sees(".rows", "b-1")
	p.do(chromedp.Evaluate(`document.activeElement.blur()`, nil)) // keys in a field are text
	p.press("j")
	p.until(`document.querySelector("tr.selected")`)
	p.press("\r")

	// A saga that is done: each bar stands behind those that it needs.
	p.sees(".says .state", "done")
	p.sees("[data-step=pay] .what", "pivot")
	p.sees("[data-step=pay] .needs", "after hotel, seat")
	p.until(`document.querySelectorAll(".line .try.succeeded").length === 4`)
	require.True(t, value[bool](p, `(() => { const at = (step) => document.querySelector("[data-step=" + step + "] .try").getBoundingClientRect();
		return at("hotel").left < at("seat").left && at("seat").left < at("pay").left && at("pay").left < at("voucher").left; })()`))
	require.Zero(t, value[int](p, `document.querySelectorAll("[data-verb=cancel]").length`), "what is done is not cancelled")
	p.click("[data-step=hotel] a")
	p.sees("h1.key", "default/trip/b-1#hotel")
	require.Equal(t, "hotel.book", s.must("GET", "/v1/flights?key=default/trip/b-1%23hotel", nil)["action"], "the queue of the step, which its key does not name")

	// A saga whose undo is in doubt: a person lets it run again, and the saga ends.
	p.visit(s.url + "/console/#/saga?key=default%2Ftrip%2Fb-2")
	p.sees(".says", "step pay was refused")
	p.sees(`[data-step="seat.undo"] .state`, "in doubt")
	p.sees(`[data-step="voucher"] .text`, "never started")
	p.until(`document.querySelector("[data-step=seat] .mark.bad")`)
	require.NoError(t, os.Remove(strike))
	p.click(`[data-step="seat.undo"] button`)
	p.click("input[value=not_happened]")
	p.fill("dialog input[name=reason]", "the airline says so")
	p.click("dialog button.act")
	p.sees(".says .state", "undone")
	p.sees(`[data-step="seat.undo"] .text`, "decided: it did not happen: the airline says so")
	p.sees(`[data-step="hotel.undo"] .state`, "succeeded")

	// A saga that waits is cancelled, with a reason.
	p.visit(s.url + "/console/#/saga?key=default%2Ftour%2Ft-3")
	p.sees("[data-step=bus] .text", "waits for a worker of bus.book")
	p.shortcut("c")
	p.sees("dialog .does", "No further step starts. Nothing has happened yet, so nothing is undone.")
	require.True(t, value[bool](p, `document.querySelector("dialog button.act").disabled`), "without a reason nothing is sent")
	p.fill("dialog input[name=reason]", "the bus is full")
	p.fill("dialog input[name=actor]", "Ann")
	p.click("dialog button.act")
	p.sees(".says .state", "undone")
	p.sees(".says", "the bus is full (cancelled by Ann)")
	p.sees("[data-step=bus] .text", "never started")
	require.Equal(t, "failed", s.must("GET", "/v1/flights?key=default/tour/t-3", nil)["state"])
}

// A token that only reads is offered no decision.
func TestSagasAndQueues_ForReaders(t *testing.T) {
	t.Parallel()
	s := startServe(t)
	reader := s.newToken("reader", "default", "read")
	s.must("POST", "/v1/flights:submit", object{"action": "export", "id": "day-1", "input": object{}})
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/queues?namespace=default&action=export")
	p.signIn(reader, false)
	p.sees(".detail h2", "export")
	require.Zero(t, value[int](p, `document.querySelectorAll("[data-verb]").length`))
	p.shortcut("p")
	require.Zero(t, value[int](p, `document.querySelectorAll("dialog").length`))
	p.do(chromedp.Evaluate(`location.hash = "#/cluster"`, nil))
	p.sees(".problem", "forbidden") // the nodes are for tokens of all namespaces
	p.do(chromedp.Evaluate(`location.hash = "#/live"`, nil))
	p.until(`document.querySelectorAll(".chart canvas").length === 4`)
}

// A step whose success comes after its saga was undone is undone with a reason. The dialog is about the saga of its page, and does not
// move to another one.
func TestSagas_UndoLate(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	file := filepath.Join(t.TempDir(), "stay.yaml")
	require.NoError(t, os.WriteFile(file, []byte("saga: stay\nsteps:\n  room: { action: room.book, undo: { action: room.cancel } }\n"), 0o600))
	s.cli("sagas", "apply", file)
	for _, id := range []string{"s-1", "s-2"} {
		s.must("POST", "/v1/sagas:start", object{"saga": "stay", "id": id, "input": object{}})
		worker := s.must("POST", "/v1/sessions", object{"ttl_ms": 60000, "owner": "slow"})["session"]
		job := s.must("POST", "/v1/flights:claim", object{"session": worker, "nonce": "claim-of-" + id, "actions": []string{"room.book"}, "slots": 1, "wait_ms": 10000})["jobs"].([]any)[0].(object)
		act := func(key, verb string, body object) {
			f := s.must("GET", "/v1/flights?key="+url.QueryEscape(key), nil)
			s.must("POST", "/v1/flights/"+f["id"].(string)+"/"+verb, body, "If-Match", `"`+f["version"].(string)+`"`)
		}
		saga := "default/stay/" + id
		act(saga, "cancel", object{"reason": "the customer called"})
		s.report(job, object{"outcome": "unknown", "error": "no answer"})
		s.awaits("/v1/sagas?state=in_doubt", func(a object) bool { return len(a["sagas"].([]any)) == 1 })
		act(saga+"#room", "resolve", object{"result": "not_happened", "reason": "the hotel has no booking"})
		s.awaits("/v1/flights?key="+saga, func(f object) bool { return f["state"] == "failed" })
		_, status := s.call("POST", "/v1/flights/"+job["flight_id"].(string)+"/report", object{"fencing_token": job["fencing_token"], "key": job["key"], "outcome": "succeeded", "external_id": "r-17"})
		require.Equal(t, http.StatusConflict, status, "it is evidence")
	}
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/saga?key=default%2Fstay%2Fs-1")
	p.sees(`[data-step="room.late"] .text`, "It has happened after the saga had taken it for not done.")
	p.click(`[data-step="room.late"] button`)
	p.sees("dialog .does", "The saga does not change.")
	p.do(chromedp.Evaluate(`location.hash = "#/saga?key=default%2Fstay%2Fs-2"`, nil))
	p.sees("h1", "stay/s-2")
	p.until(`document.querySelector('[data-step="room.late"] button')`)
	require.Zero(t, value[int](p, `document.querySelectorAll("dialog").length`))

	p.click(`[data-step="room.late"] button`)
	require.True(t, value[bool](p, `document.querySelector("dialog button.act").disabled`), "without a reason nothing is sent")
	p.fill("dialog input[name=reason]", "the hotel has booked after all")
	p.click("dialog button.act")
	p.sees(".toasts", "room: its undo is submitted")
	p.sees(`[data-step="room.late"] .text`, "waits for a worker")
	require.Equal(t, "ready", s.must("GET", "/v1/flights?key=default/room.cancel/undo-late:room:stay:s-2", nil)["state"])
	_, status := s.call("GET", "/v1/flights?key=default/room.cancel/undo-late:room:stay:s-1", nil)
	require.Equal(t, http.StatusNotFound, status)
}

// Each step that ends changes the saga: a person who is still writing the reason sees it in the dialog, and cancels what the dialog says.
func TestSagas_CancelWhileItRuns(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	file := filepath.Join(t.TempDir(), "stay.yaml")
	require.NoError(t, os.WriteFile(file, []byte("saga: stay\nsteps:\n  room: { action: room.book, undo: { action: room.cancel } }\n  meal: { action: meal.book, needs: [room], no_undo: true }\n"), 0o600))
	s.cli("sagas", "apply", file)
	s.must("POST", "/v1/sagas:start", object{"saga": "stay", "id": "s-1", "input": object{}})
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/saga?key=default%2Fstay%2Fs-1")
	p.click("[data-verb=cancel]")
	p.sees("dialog .does", "Nothing has happened yet")
	p.fill("dialog input[name=reason]", "the customer called")
	s.worker("true", "room.book")
	p.sees("dialog .does", "Then what has happened is undone, the last first: room.")
	p.sees("[data-step=meal] .text", "waits for a worker") // the saga changes once more for it
	p.click("dialog button.act")
	p.sees(".says", "the customer called")
	p.until(`!document.querySelector("dialog")`)
}
