//go:build clients

package conformance

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/wire"
)

// scenarios is the list. Each has a key, a proxy, a provider and a spool of its own, and all but those that kill it share
// one flightd, so that they run side by side.
func scenarios() []scenario {
	return append(between(), []scenario{
		{"crowd", crowd}, {"replay", replay}, {"without-input", withoutInput}, {"open-lost", openLost}, {"report-lost", reportLost},
		{"answer-drips", answerDrips}, {"not-done-beside-what-stands", notDoneBesideWhatStands}, {"unknown-is-not-done-again", unknownIsNotDoneAgain},
		{"resent-in-one-attempt", resentInOneAttempt}, {"redirected", redirected}, {"conflict", conflict}, {"declined", declined}, {"unknown-is-held", unknownIsHeld},
		{"error-before-effect", errorBeforeEffect}, {"left-behind", leftBehind}, {"time-is-over", timeIsOver}, {"not-done", notDone}, {"busy", busy},
		{"no-hammering", noHammering}, {"servers-in-turn", serversInTurn}, {"two-deployments", twoDeployments}, {"nobody-there", nobodyThere}, {"answer-too-late", answerTooLate}, {"answer-after-its-session", answerAfterItsSession},
		{"late-renewals", lateRenewals}, {"gone-with-its-answer", goneWithItsAnswer}, {"gone-for-longer", goneForLonger},
		{"killed-in-mid-effect", killedInMidEffect}, {"away-at-the-end", awayAtTheEnd},
		{"away-for-three-ttls", awayForThreeTTLs}, {"dead-caller-is-held", deadCallerIsHeld},
		{"spool-delivered-by-itself", spoolDeliveredByItself}, {"spool-delivered-later", spoolDeliveredLater}, {"spool-is-shared", spoolIsShared},
		{"spool-goes-on", spoolGoesOn}, {"spool-is-sent-as-it-is", spoolIsSentAsItIs}, {"spool-of-a-later-version", spoolOfALaterVersion}, {"disk-takes-nothing", diskTakesNothing},
		{"wiped", wiped}, {"wiped-in-mid-effect", wipedInMidEffect}, {"unrecorded-is-not-let-go", unrecordedIsNotLetGo}, {"unrecorded-and-gone", unrecordedAndGone},
		{"first-server-takes-and-is-silent", firstTakesAndIsSilent}, {"nested", nested},
		{"frozen-before-effect-hold", frozenBeforeEffectHold}, {"frozen-in-effect-hold", frozenInEffectHold},
		{"window-is-over", windowIsOver}, {"frozen-before-effect-resend", frozenBeforeEffectResend}, {"frozen-in-effect-resend", frozenInEffectResend},
		{"verify-own-doubt", verifyOwnDoubt}, {"verify-dead-holder-happened", verifyDeadHolderHappened},
		{"verify-dead-holder-did-not", verifyDeadHolderDidNot}, {"look-takes-its-time", lookTakesItsTime},
		{"who-cannot-look-lets-go", whoCannotLookLetsGo},
	}...)
}

type scenario struct {
	name string
	run  func(*trial)
}

// A slip of the pen in the list of languages does not leave one out.
func TestWantedLanguagesAreKnown(t *testing.T) {
	known := map[string]bool{}
	for _, l := range languages() {
		known[l.name] = true
	}
	for name := range wanted() {
		require.True(t, known[name], "FLIGHTD_CLIENTS names %q, which is none of %v", name, known)
	}
}

func TestConformance(t *testing.T) {
	for _, l := range languages() {
		if !wanted()[l.name] {
			t.Logf("%s is left out on demand: FLIGHTD_CLIENTS=%q", l.name, os.Getenv("FLIGHTD_CLIENTS"))
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			l.ready(t)
			shared := newHouse(t)
			for _, s := range scenarios() {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					s.run(newTrial(t, l, s.name, shared))
				})
			}
		})
	}
}

// trial is one scenario with one language.
type trial struct {
	*testing.T
	language language
	house    *house
	proxy    *proxy
	provider *provider
	spool    string
	id, key  string
}

func newTrial(t *testing.T, l language, id string, h *house) *trial {
	return &trial{T: t, language: l, house: h, proxy: newProxy(t, h), provider: newProvider(t), spool: t.TempDir(),
		id: id, key: "default/charge/" + id}
}

// moveOut gives the trial a flightd of its own, which it may kill.
func (t *trial) moveOut() {
	t.house = newHouse(t.T)
	t.proxy = newProxy(t.T, t.house)
}

// setup is that of a client behind the proxy.
func (t *trial) setup() setup {
	return setup{Address: t.proxy.url, Spool: t.spool, PatienceMS: 20_000, ReportWaitMS: 20_000}
}

// driver starts a client of the language on trial.
func (t *trial) driver(changes ...func(*setup)) *driver {
	t.Helper()
	s := t.setup()
	for _, change := range changes {
		change(&s)
	}
	return newDriver(t.T, t.language, s)
}

// input has what fingerprints of different languages must agree on.
func input() any {
	return map[string]any{"cents": 4200, "ratio": 1.5, "note": "é </b> \u2028", "z": []any{true, nil, map[string]any{"b": 1, "a": -0.5}}}
}

// call is a call for the trial's key.
func (t *trial) call(changes ...func(*call)) call {
	c := call{Name: "charge", ID: t.id, Input: input(), Effect: t.provider.url + "/effect"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func waitMS(ms int) func(*call)          { return func(c *call) { c.WaitMS = ms } }
func recovery(word string) func(*call)   { return func(c *call) { c.Recovery = word } }
func (t *trial) pausedBefore(c *call)    { c.Before = t.provider.url + "/before" }
func ttl(seconds int) func(*setup)       { return func(s *setup) { s.TTL = seconds } }
func reportWait(ms int) func(*setup)     { return func(s *setup) { s.ReportWaitMS = ms } }
func (t *trial) flight() wire.Flight     { t.Helper(); return t.house.flight(t.key) }
func (t *trial) charges() (all []charge) { all, _ = t.provider.happened(); return all }
func (t *trial) asked() []call2provider  { _, all := t.provider.happened(); return all }
func succeeded(f wire.Flight) bool       { return f.State == "succeeded" }
func inDoubt(f wire.Flight) bool         { return f.State == "in_doubt" }
func (a *answer) fits(error, src string) bool {
	return a.Error == error && (src == "" || a.Source == src)
}

// got holds an answer against what it should be: an error's word, or a source.
func (t *trial) got(a answer, want string) {
	t.Helper()
	switch want {
	case "executed", "joined", "replayed":
		require.Truef(t, a.fits("", want), "wanted %s, got %+v", want, a)
	default:
		require.Truef(t, a.fits(want, ""), "wanted error %s, got %+v", want, a)
	}
}

// landed says that the flight has succeeded, once, by so many attempts, without a doubt or an overlap left.
func (t *trial) landed(attempts uint32) wire.Flight {
	t.Helper()
	f := t.flight()
	require.Equal(t, "succeeded", f.State)
	require.Equal(t, attempts, f.Attempts)
	require.False(t, f.Overlap)
	require.Len(t, t.charges(), 1, "what really happened")
	return f
}

// until waits until the trial's flight is as wanted.
func (t *trial) until(what string, holds func(wireFlight) bool) {
	t.Helper()
	eventually(t, t.key+" "+what, patience, func() bool { return holds(t.flight()) })
}

// spooled are the names of the reports that wait on disk.
func (t *trial) spooled() (names []string) {
	t.Helper()
	entries, err := os.ReadDir(t.spool)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".report") {
			names = append(names, e.Name())
		}
	}
	return names
}

// value reads what a caller got.
func (t *trial) value(a answer) (c charge) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.Value, &c), "%s", a.Value)
	return c
}
