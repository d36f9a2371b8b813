package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

const tripYAML = `saga: trip
steps:
  hotel:   { action: hotel.book, input: {$from: /input}, undo: { action: hotel.cancel, input: {room: {$from: /steps/hotel/body/id}} } }
  seat:    { action: seat.book, needs: [hotel], input: {$from: /input}, undo: { action: seat.cancel, input: {pnr: {$from: /steps/seat/body/pnr}} } }
  pay:     { action: charge, needs: [hotel, seat], input: {cents: {$from: /input/cents}, pnr: {$from: /steps/seat/body/pnr}}, pivot: true }
  voucher: { action: mail, needs: [pay], input: {to: {$from: /input/mail}}, retry: { within: 72h } }
`

// agency is a folder with the definition of a trip, the script that performs its steps, and the books of the providers: a line for each
// effect. An effect waits while the file "closed", or "closed.STEP", exists; a cancellation breaks off while "broken" exists; a charge of 13 cents is refused.
type agency struct {
	*shop
	t *testing.T
}

func newAgency(t *testing.T) *agency {
	a := &agency{NewShop(t, false), t}
	a.write("trip.yaml", tripYAML)
	a.script(`input=$(cat); step=${FLIGHTD_KEY#*/*/}
while [ -e closed ] || [ -e "closed.${step#*#}" ]; do sleep 0.05; done
case "$step $input" in *.undo\ *) [ ! -e broken ] || exit 9;; *'#pay {"cents":13,'*) echo '"declined"'; exit 3;; esac
echo "$step $input" >>books
echo '{"id":"room_17","pnr":"X7"}'`)
	return a
}

func (a *agency) write(name, text string) {
	require.NoError(a.t, os.WriteFile(a.path(name), []byte(text), 0o600))
}

// books returns the effects of a trip, in their order.
func (a *agency) books(id string) (entries []string) {
	text, _ := os.ReadFile(a.path("books"))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, id+"#"); ok {
			entries = append(entries, strings.TrimSpace(rest))
		}
	}
	return entries
}

// open begins the workers of the agency: bookings that the provider refuses, and cancellations of which nobody knows.
func (a *agency) open(s *server) {
	require.Zero(a.t, s.flightd("sagas", "apply", a.path("trip.yaml")).code)
	s.begin("work", "hotel.book", "seat.book", "charge", "mail", "--failure", "refused", "--", a.path("job.sh"))
	s.begin("work", "hotel.cancel", "seat.cancel", "--", a.path("job.sh"))
}

func TestSagas_Define(t *testing.T) {
	t.Parallel()
	s, a := startServer(t), newAgency(t)
	lint := s.flightd("sagas", "lint", a.path("trip.yaml"))
	require.Zero(t, lint.code, "%v", lint)
	require.Empty(t, lint.out)
	require.Contains(t, lint.err, "trip.yaml:3:3: step hotel: recovery hold without a timeout")
	a.write("typos.yaml", "saga: trip\nsteps:\n  a: {acton: b, no_undo: true}\n  b: {ned: [a], no_undo: true}\n")
	typos := s.flightd("sagas", "lint", a.path("typos.yaml"))
	require.Equal(t, cli.ExitFailed, typos.code)
	require.Equal(t, strings.ReplaceAll("DIR/typos.yaml:3:7: /steps/0/acton: unknown field \"acton\" (do you mean action?)\nDIR/typos.yaml:4:7: /steps/1/ned: unknown field \"ned\" (do you mean needs?)\n", "DIR", a.dir), typos.out)
	a.write("bad.yaml", strings.Replace(strings.Replace(tripYAML, "needs: [hotel]", "needs: [hotle]", 1), "72h", "soon", 1))
	a.write("worse.yaml", strings.Replace(tripYAML, "needs: [hotel]", "needs: [hote], recovery: guess", 1))
	lint = s.flightd("sagas", "lint", a.path("bad.yaml"), a.path("worse.yaml"))
	require.Equal(t, cli.ExitFailed, lint.code, "%v", lint)
	require.Equal(t, strings.ReplaceAll(
		`DIR/bad.yaml:6:86: /steps/3/retry/within: invalid value: "soon" is not a duration such as 30s, 24h or 7d
DIR/worse.yaml:4:41: step seat: there is no step "hote" (do you mean hotel?)
DIR/worse.yaml:4:48: step seat: "guess" is none of hold, resend and verify
`, "DIR", a.dir), lint.out)
	apply := s.flightd("sagas", "apply", a.path("trip.yaml"), a.path("worse.yaml"))
	require.Equal(t, cli.ExitFailed, apply.code, "%v", apply)
	require.Contains(t, s.flightd("sagas", "versions", "trip").err, "nobody has defined", "nothing was stored")
	for _, status := range []string{"created", "unchanged"} {
		apply = s.flightd("sagas", "apply", a.path("trip.yaml"))
		require.Regexp(t, `trip@1 +`+status+"\n", apply.out, "%v", apply)
	}
	a.write("action.yaml", "action: charge\nrecovery: resend\n")
	require.Zero(t, s.flightd("actions", "apply", a.path("action.yaml"), "--reason", "a test").code)
	require.Contains(t, s.flightd("sagas", "apply", a.path("trip.yaml")).err, "the action charge has a document, whose policy and lane do not count for step pay")
	a.write("changed.yaml", strings.Replace(tripYAML, "72h", "71h", 1))
	apply = s.flightd("sagas", "apply", a.path("changed.yaml"))
	require.Equal(t, cli.ExitUsage, apply.code, "%v", apply)
	require.Contains(t, apply.err, "a version never changes")
	a.write("second.json", `{"saga": "trip", "version": 2, "steps": [{"name": "hotel", "no_undo": true}]}`)
	require.Zero(t, s.flightd("sagas", "apply", a.path("second.json")).code)
	require.Equal(t, "trip@1\ntrip@2\n", s.flightd("sagas", "versions", "trip", "-o", "id").out)

	start := s.flightd("sagas", "start", "trip@3", "--id", "b-1")
	require.Equal(t, cli.ExitFailed, start.code, "%v", start)
	require.Contains(t, start.err, "flightd sagas versions")
	require.Equal(t, cli.ExitUsage, s.flightd("sagas", "start", "trip").code, "no id")
	require.Equal(t, cli.ExitUsage, s.flightd("sagas", "start", "trip", "--id", "b-1", "--input", "{").code)
	require.Contains(t, s.flightd("sagas", "start", "trip", "--id", "b-1").out, "default/trip/b-1: queued, running of trip@2\n", "the newest version")
	require.Contains(t, s.flightd("sagas", "start", "trip@1", "--id", "b-1").out, "duplicate, running of trip@2\n", "a run stays with its version")
	for line, want := range map[string]string{"sagas get ": "trip/b-1", "sagas watch tr": "trip/b-1", "sagas cancel x": "", "sagas get trip/b-1 ": ""} {
		Eventually(t, line+" is completed", func() bool { return strings.Join(s.complete(strings.Split(line, " ")...), " ") == want }) // it may time out
	}
	cancel := s.flightd("sagas", "cancel", "trip/b-1", "--reason", "a test")
	require.Zero(t, cancel.code, "%v", cancel)
	watch := s.flightd("sagas", "watch", "trip/b-1")
	require.Equal(t, cli.ExitFailed, watch.code, "%v", watch)
	require.Contains(t, watch.out, ": a test (cancelled by ")
	require.Contains(t, watch.out, "never started")
	require.Regexp(t, `trip@2 +1 +0 `, s.flightd("sagas", "versions", "trip").out)

	require.Contains(t, s.flightd("sagas", "start", "trip@1", "--id", "b-2", "--input", `{"cents":12,"mail":"ann@example.com"}`).out, "queued")
	require.Regexp(t, `trip@1 +4 +1 `, s.flightd("sagas", "versions", "trip").out)
	deleted := s.flightd("sagas", "delete", "trip@1", "--yes")
	require.Equal(t, cli.ExitFailed, deleted.code, "%v", deleted)
	require.Contains(t, deleted.err, "trip@1 has sagas that are not over: 1")
	require.Contains(t, deleted.err, "flightd sagas ls trip")
	require.Equal(t, cli.ExitUsage, s.flightd("sagas", "delete", "trip", "--yes").code)
	require.NotZero(t, s.flightd("sagas", "delete", "trip@2").code, "nobody was asked")
	require.Contains(t, s.flightd("sagas", "delete", "trip@2", "--yes").err, "deleted trip@2")
	require.Contains(t, s.flightd("sagas", "get", "trip/b-1").out, "  hotel        failed (was cancelled", "its receipt is kept")
	require.Contains(t, s.flightd("sagas", "get", "trip/b-1#hotel").err, "trip/b-1#hotel is a step; use the key of its saga: trip/b-1")
	require.Equal(t, "trip@1\n", s.flightd("sagas", "versions", "trip", "-o", "id").out)
	require.Equal(t, cli.ExitFailed, s.flightd("sagas", "delete", "trip@2", "--yes").code, "there is none")
	a.write("second.json", `{"saga": "trip", "version": 2, "steps": [{"name": "car", "no_undo": true}]}`)
	require.Zero(t, s.flightd("sagas", "apply", a.path("second.json")).code)
	require.Contains(t, s.flightd("sagas", "get", "trip/b-1").out, "  hotel        failed (was cancelled", "another definition of the same name is not its own")
	require.Contains(t, s.flightd("sagas", "undo-late", "trip/b-1", "hotel", "--reason", "a test").err, "the definition of the saga was deleted")
	require.Contains(t, s.flightd("sagas", "start", "trip", "--id", "b-3").out, "of trip@2\n")
	require.Equal(t, "default/trip/b-1\n", strings.Fields(s.flightd("sagas", "ls", "--state", "undone").out)[5]+"\n")

	s.post("/v1/sagas:start", `{"saga":"trip","id":"b-4","retention":"1s"}`, new(wire.StartSagaAnswer))
	require.Zero(t, s.flightd("sagas", "cancel", "trip/b-4", "--reason", "a test").code)
	s.flightd("sagas", "watch", "trip/b-4")
	Eventually(t, "its retention is over", func() bool { return s.flight("default/trip/b-4").State == flight.StateExpired.String() })
	get := s.flightd("sagas", "get", "trip/b-4")
	require.Equal(t, cli.ExitFailed, get.code, "%v", get)
	require.Contains(t, get.err, "default/trip/b-4 ended as failed; its receipt is no longer kept")
	require.Contains(t, get.err, "flights free default/trip/b-4 ")
}

// A failure before the pivot undoes what has happened, the last first. An undo of which nobody knows waits for a person, who sees the
// command, and whose decision moves the saga on.
func TestSagas_UndoneInReverse(t *testing.T) {
	t.Parallel()
	s, a := startServer(t), newAgency(t)
	a.open(s)
	done := s.flightd("sagas", "start", "trip", "--id", "b-1", "--input", `{"cents":12,"mail":"ann@example.com"}`, "--wait", "forever")
	require.Zero(t, done.code, "%v", done)
	require.Equal(t, []string{`hotel {"cents":12,"mail":"ann@example.com"}`, `seat {"cents":12,"mail":"ann@example.com"}`, `pay {"cents":12,"pnr":"X7"}`, `voucher {"to":"ann@example.com"}`}, a.books("b-1"))
	require.Regexp(t, `^default/trip/b-1  trip@1, done after `, done.out)

	a.write("broken", "")
	doubt := s.flightd("sagas", "start", "trip", "--id", "b-2", "--input", `{"cents":13,"mail":"ann@example.com"}`, "--wait", "forever")
	require.Equal(t, cli.ExitInDoubt, doubt.code, "%v", doubt)
	require.Regexp(t, `pay +.* refused .*; the pivot\n`, doubt.out)
	require.Contains(t, doubt.out, "next: flightd doubt resolve default/trip/b-2#seat.undo --reason WHY --did-not-happen (it runs again)")
	require.Contains(t, s.flightd("doubt", "ls").out, "default/trip/b-2#seat.undo ")
	require.Contains(t, s.flightd("why", "trip/b-2#seat.undo").out, "--fail (let it pass")
	require.Contains(t, s.flightd("flights", "get", "trip/b-2#seat").out, "default/trip/b-2#seat\n")
	require.NoError(t, os.Remove(a.path("broken")))
	r := s.flightd("doubt", "resolve", "trip/b-2#seat.undo", "--did-not-happen", "--reason", "the airline has no cancellation", "--yes")
	require.Zero(t, r.code, "%v", r)
	watch := s.flightd("sagas", "watch", "trip/b-2")
	require.Equal(t, cli.ExitFailed, watch.code, "%v", watch)
	require.Contains(t, watch.out, "undone after ")
	require.Contains(t, watch.out, "decided: it did not happen (the airline has no cancellation)")
	require.Equal(t, []string{`hotel {"cents":13,"mail":"ann@example.com"}`, `seat {"cents":13,"mail":"ann@example.com"}`, `seat.undo {"pnr":"X7"}`, `hotel.undo {"room":"room_17"}`}, a.books("b-2"))
	var shown client.Saga
	require.NoError(t, json.Unmarshal([]byte(s.flightd("sagas", "get", "trip/b-2", "-o", "json").out), &shown))
	require.Equal(t, "undone", shown.State)
	late := s.flightd("sagas", "undo-late", "trip/b-1", "hotel", "--reason", "a test")
	require.Equal(t, cli.ExitFailed, late.code, "%v", late)
	require.Contains(t, late.err, "precondition_failed: the saga is done")
	late = s.flightd("sagas", "undo-late", "trip/b-2", "hotel", "--reason", "a test")
	require.Contains(t, late.err, "flightd flights get default/trip/b-2#hotel", "%v", late)
	require.Equal(t, cli.ExitUsage, s.flightd("sagas", "undo-late", "trip/b-2", "hotel").code, "no reason")
	retry := s.flightd("flights", "retry", "trip/b-2", "--reason", "again", "--yes")
	require.NotZero(t, retry.code, "a new run has a new id")
}
