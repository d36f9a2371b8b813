//go:build clients

package conformance

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// scenarios are all scenarios. Each has, in each language, its own key, proxy, provider and spool. Scenarios that do not kill
// flightd share one server, so that they run in parallel.
func scenarios() []scenario {
	return append(slices.Concat(middleboxScenarios(), copiesScenarios(), sessionScenarios(), jobScenarios(), clusterScenarios()), []scenario{
		{"many-callers", manyCallers}, {"replay", replay}, {"without-input", withoutInput}, {"open-lost", openLost}, {"open-incomplete", openIncomplete}, {"report-lost", reportLost},
		{"answer-drips", answerDrips}, {"not-done-after-success", notDoneAfterSuccess}, {"unknown-stops-attempt", unknownStopsAttempt},
		{"resend-in-one-attempt", resendInOneAttempt}, {"redirected", redirected}, {"conflict", conflict}, {"declined", declined}, {"unknown-is-held", unknownIsHeld}, {"resolved-without-receipt", resolvedWithoutReceipt},
		{"error-before-effect", errorBeforeEffect}, {"work-after-return", workAfterReturn}, {"timeout-before-effect", timeoutBeforeEffect}, {"not-done", notDone}, {"swallowed-error", swallowedError}, {"work-that-has-not-run", workThatHasNotRun}, {"failed-lookup-is-named", failedLookUpIsNamed}, {"overrun-is-named", overrunIsNamed}, {"busy", busy},
		{"no-hammering", noHammering}, {"servers-in-turn", serversInTurn}, {"two-deployments", twoDeployments}, {"pinned-deployment", pinnedDeployment}, {"no-server", noServer}, {"refused-within-the-wait", refusedWithinTheWait}, {"rejected-while-another-is-down", rejectedWhileAnotherIsDown}, {"answer-after-trust", answerAfterTrust}, {"answer-after-its-session", answerAfterItsSession},
		{"late-renewals", lateRenewals}, {"abandon-after-lost-answer", abandonAfterLostAnswer}, {"abandon-after-outage", abandonAfterOutage},
		{"server-killed-during-effect", serverKilledDuringEffect}, {"server-down-at-report", serverDownAtReport},
		{"server-down-for-three-ttls", serverDownForThreeTTLs}, {"dead-caller-is-held", deadCallerIsHeld},
		{"spool-delivered-by-same-client", spoolDeliveredByItself}, {"spool-delivered-by-next-client", spoolDeliveredLater}, {"spool-is-shared", spoolIsShared},
		{"spool-skips-rejected-report", spoolSkipsRejectedReport}, {"spool-sent-byte-for-byte", spoolSentByteForByte}, {"spool-of-a-later-version", spoolOfALaterVersion}, {"disk-full", diskFull},
		{"server-data-lost", serverDataLost}, {"server-data-lost-during-effect", serverDataLostDuringEffect}, {"unrecorded-is-not-abandoned", unrecordedIsNotAbandoned}, {"unrecorded-after-client-exit", unrecordedAfterClientExit},
		{"first-server-never-answers", firstServerNeverAnswers}, {"nested", nested},
		{"frozen-before-effect-hold", frozenBeforeEffectHold}, {"frozen-in-effect-hold", frozenInEffectHold},
		{"resend-window-over", resendWindowOver}, {"frozen-before-effect-resend", frozenBeforeEffectResend}, {"frozen-in-effect-resend", frozenInEffectResend},
		{"verify-own-unknown-outcome", verifyOwnUnknownOutcome}, {"verify-dead-holder-happened", verifyDeadHolderHappened},
		{"verify-dead-holder-did-not", verifyDeadHolderDidNot}, {"slow-lookup", slowLookup},
		{"policy-after-lookup", policyAfterLookUp}, {"lookup-finds-nothing-out-at-first", lookUpFindsNothingOutAtFirst}, {"proceeds-always-too-late", proceedsAlwaysTooLate},
		{"caller-without-lookup-abandons", callerWithoutLookupAbandons},
		{"without-access", withoutAccess}, {"token-replaced", tokenReplaced},
	}...)
}

type scenario struct {
	name string
	run  func(*trial)
}

// TestWantedLanguagesAreKnown fails for a misspelled language, which would otherwise be left out silently.
func TestWantedLanguagesAreKnown(t *testing.T) {
	known := map[string]bool{}
	for _, l := range languages() {
		known[l.name] = true
	}
	for name := range wanted() {
		require.True(t, known[name], "FLIGHTD_CLIENTS: unknown language %q; allowed: %v", name, known)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	shared := newServer(t)
	for _, l := range languages() {
		if !wanted()[l.name] {
			t.Logf("%s is not selected: FLIGHTD_CLIENTS=%q", l.name, os.Getenv("FLIGHTD_CLIENTS"))
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			l.requireReady(t)
			for _, s := range scenarios() {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					s.run(newTrial(t, l, l.name+"-"+s.name, shared))
				})
			}
		})
	}
}

// trial is one scenario in one language.
type trial struct {
	*testing.T
	language language
	server   *server
	proxy    *proxy
	provider *provider
	spool    string
	id, key  string
}

func newTrial(t *testing.T, l language, id string, h *server) *trial {
	return &trial{T: t, language: l, server: h, proxy: newProxy(t, h), provider: newProvider(t), spool: t.TempDir(),
		id: id, key: "default/charge/" + id}
}

// useOwnServer starts a lone flightd for this trial alone, which may kill it.
func (t *trial) useOwnServer() {
	t.server = startServer(t.T, secure)
	t.proxy = newProxy(t.T, t.server)
}

// setup returns the set-up of a client behind the proxy.
func (t *trial) setup() setup {
	return setup{Address: t.proxy.url, Spool: t.spool, RetryTimeoutMS: 60_000, ReportWaitMS: 20_000, env: t.server.credentialFiles()}
}

// driver starts a client of the trial's language.
func (t *trial) driver(changes ...func(*setup)) *driver {
	t.Helper()
	s := t.setup()
	for _, change := range changes {
		change(&s)
	}
	return newDriver(t.T, t.language, s)
}

// input returns an input with values that languages encode differently; all fingerprints of it must be equal.
func input() any {
	return map[string]any{"cents": 4200, "ratio": 1.5, "note": "é </b> \u2028", "z": []any{true, nil, map[string]any{"b": 1, "a": -0.5}}}
}

// call returns a call for the trial's key.
func (t *trial) call(changes ...func(*call)) call {
	c := call{Name: "charge", ID: t.id, Input: input(), Effect: t.provider.url + "/effect"}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func waitMS(ms int) func(*call)                      { return func(c *call) { c.WaitMS = ms } }
func recovery(word string) func(*call)               { return func(c *call) { c.Recovery = word } }
func (t *trial) pausedBefore(c *call)                { c.Before = t.provider.url + "/before" }
func ttl(seconds int) func(*setup)                   { return func(s *setup) { s.TTL = seconds } }
func reportWait(ms int) func(*setup)                 { return func(s *setup) { s.ReportWaitMS = ms } }
func (t *trial) flight() wire.Flight                 { t.Helper(); return t.server.flight(t.key) }
func (t *trial) charges() (all []charge)             { all, _ = t.provider.recorded(); return all }
func (t *trial) providerRequests() []providerRequest { _, all := t.provider.recorded(); return all }
func succeeded(f wire.Flight) bool                   { return f.State == "succeeded" }
func inDoubt(f wire.Flight) bool                     { return f.State == "in_doubt" }
func (a *answer) matches(error, src string) bool {
	return a.Error == error && (src == "" || a.Source == src)
}

// requireAnswer checks that an answer has the wanted source, or the wanted error code.
func (t *trial) requireAnswer(a answer, want string) {
	t.Helper()
	switch want {
	case "executed", "joined", "replayed":
		require.Truef(t, a.matches("", want), "wanted %s, got %+v", want, a)
	default:
		require.Truef(t, a.matches(want, ""), "wanted error %s, got %+v", want, a)
	}
}

// requireOneEffect checks that the flight succeeded after that many attempts, with one charge and without an overlap.
func (t *trial) requireOneEffect(attempts uint32) wire.Flight {
	t.Helper()
	f := t.flight()
	require.Equal(t, "succeeded", f.State)
	require.Equal(t, attempts, f.Attempts)
	require.False(t, f.Overlap)
	require.Len(t, t.charges(), 1, "charges at the provider")
	return f
}

// waitFlight waits until the condition holds for the trial's flight.
func (t *trial) waitFlight(what string, holds func(wireFlight) bool) {
	t.Helper()
	eventually(t, t.key+" "+what, waitTimeout, func() bool { return holds(t.flight()) })
}

// waitHistory waits until the history of a flight contains the text.
func (t *trial) waitHistory(key, text string) {
	t.Helper()
	eventually(t, "the history has: "+text, waitTimeout, func() bool { return strings.Contains(t.server.history(key), text) })
}

// spooled returns the file names of the spooled reports.
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

// value decodes the value of an answer.
func (t *trial) value(a answer) (c charge) {
	t.Helper()
	require.NoError(t, json.Unmarshal(a.Value, &c), "%s", a.Value)
	return c
}
