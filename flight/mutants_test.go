//go:build mutants

package flight_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutants breaks one rule at a time and requires that another test of this package fails. It builds each broken version with
// an overlay and changes no file.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(m.file)
			require.NoError(t, err)
			require.Equal(t, 1, bytes.Count(source, []byte(m.old)), "how often the code to break is in %s", m.file)
			tests := build(t, m.file, bytes.Replace(source, []byte(m.old), []byte(m.broken), 1))
			// Most mutants are caught by the table tests, which are fast.
			const slow = "^TestExhaustive|^TestProperty"
			out, caught := runTests(t, tests, "-test.skip", slow)
			if !caught {
				out, caught = runTests(t, tests, "-test.run", slow)
			}
			require.True(t, caught, "no test failed")
			t.Logf("caught by %s", caughtBy(out))
		})
	}
}

// build compiles the tests of a broken version and returns the path of the test binary.
func build(t *testing.T, file string, broken []byte) string {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(file)
	require.NoError(t, err)
	replacement, overlay, tests := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "tests")
	table, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(replacement, broken, 0o600))
	require.NoError(t, os.WriteFile(overlay, table, 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", tests, "-vet=off", "-ldflags=-s -w", "-overlay", overlay, ".").CombinedOutput()
	require.NoError(t, err, "the mutant does not build:\n%s", out)
	return tests
}

func runTests(t *testing.T, tests string, which ...string) (out []byte, failed bool) {
	t.Helper()
	c := exec.CommandContext(t.Context(), tests, append(which, "-test.short", "-test.failfast", "-rapid.shrinktime", "0s", "-rapid.nofailfile")...)
	out, err := c.CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("FAIL")) && !bytes.Contains(out, []byte("panic")) {
		require.NoError(t, err, "the tests did not run:\n%s", out)
	}
	return out, err != nil
}

func caughtBy(out []byte) string {
	var names []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

type mutant struct{ name, file, old, broken string }

var mutants = []mutant{
	{"no fence check", "apply_open.go", "return f == nil || t.nextToken().Compare(f.Fence) > 0", "return f == nil || f != nil"},
	{"numbers do not rise", "apply_open.go", "next.Number += f.Fence.Number", "next.Number = max(1, f.Fence.Number)"},
	{"an Open ends the attempt in its way", "apply_open.go", "\tdefault:\n\t\treturn t.answerBusy(until)\n\t}\n\treturn DecisionNone", "\tdefault:\n\t\tt.markLost(timeoutCause(f))\n\t}\n\treturn DecisionNone"},
	{"an old epoch is taken over at once", "apply_open.go", "case sessionVoid && t.header.Now >= hold:", "case sessionVoid && t.header.Now >= 0:"},
	{"an old epoch is never taken over", "apply_open.go", "case sessionVoid && t.header.Now >= hold:", "case sessionVoid && t.header.Now < 0:"},
	{"a callback is given up early", "apply_open.go", "\t\tuntil = f.Wake.At\n", "\t\tuntil = 1\n"},
	{"a callback is given up with its session's epoch", "apply_open.go", "sessionVoid := f.State == StateRunning && a.Session.Epoch < t.header.LeaseEpoch", "sessionVoid := a.Session.Epoch < t.header.LeaseEpoch"},
	{"a deadline without the tenth", "flight.go", "p.AttemptTimeout + p.AttemptTimeout/10 + PauseBound", "p.AttemptTimeout + PauseBound"},
	{"a deadline without the pause bound", "flight.go", "p.AttemptTimeout + p.AttemptTimeout/10 + PauseBound", "p.AttemptTimeout + p.AttemptTimeout/10"},
	{"a time-out that was not declared", "flight.go", "if p.AttemptTimeout <= 0 {", "if p.AttemptTimeout < 0 {"},
	{"a time-out is never over", "apply_open.go", "case until > 0 && t.header.Now >= until:", "case until > 0 && f.State == StateWaiting && t.header.Now >= until:"},
	{"an end without the comparison of revisions", "apply_sessions.go", "(c.ReadRevision < c.Session.Revision || c.Counter < h.GuardCounter)", "(c.Counter < h.GuardCounter)"},
	{"an end read from an etcd that has lost its past", "apply_sessions.go", "(c.ReadRevision < c.Session.Revision || c.Counter < h.GuardCounter)", "(c.ReadRevision < c.Session.Revision)"},
	{"an end without the lease epoch", "apply_sessions.go", "c.Epoch != h.LeaseEpoch, c.Session.Epoch > h.LeaseEpoch:", "c.Session.Epoch > h.LeaseEpoch:"},
	{"an end of another store epoch", "apply_sessions.go", "case c.StoreEpoch != h.StoreEpoch, c.Epoch != h.LeaseEpoch,", "case c.Epoch != h.LeaseEpoch,"},
	{"a session that holds a flight is closed", "apply_sessions.go", "case held > 0:", "case held > 1:"},
	{"a close of another store epoch", "apply_sessions.go", "case c.StoreEpoch != h.StoreEpoch:\n\t\treturn DecisionFenced\n\tcase held", "case c.StoreEpoch > 99:\n\t\treturn DecisionFenced\n\tcase held"},
	{"a step of the clock ends an attempt", "flight.go", "return stored.Add(h.Steps - f.Steps)", "return stored"},
	{"a step of the clock gives an attempt less than its time", "flight.go", "return stored.Add(h.Steps - f.Steps)", "return stored.Add((h.Steps - f.Steps) / 2)"},
	{"an attempt gets the time of steps before it", "apply_open.go", "f.State, f.NotBefore, f.Cause, f.Steps = StateRunning, 0, \"\", t.header.Steps", "f.State, f.NotBefore, f.Cause = StateRunning, 0, \"\""},
	{"a callback gets the time of steps before it", "apply_saga.go", "f.State, f.Wake, f.Steps = StateWaiting, &wake, t.header.Steps", "f.State, f.Wake = StateWaiting, &wake"},
	{"a callback is moved twice by a step", "flight.go", "\tcase f.State == StateWaiting:\n\t\treturn f.HolderTime(h, f.Wake.At)", "\tcase f.State == StateWaiting:\n\t\treturn f.HolderTime(h, f.HolderTime(h, f.Wake.At))"},
	{"a step of the clock ends a callback", "flight.go", "\tcase f.State == StateWaiting:\n\t\treturn f.HolderTime(h, f.Wake.At)", "\tcase f.State == StateWaiting:\n\t\treturn f.Wake.At"},
	{"a step of the clock ends a look-up", "apply_open.go", "f.HolderTime(&t.header, p.Until)", "p.Until"},
	{"a step of the clock ends a settle delay", "apply_open.go", "f.HolderTime(&t.header, p.NotBefore)", "p.NotBefore"},
	{"a look-up gets the time of steps before it", "apply_open.go", "f.Verification, f.Steps = &p, t.header.Steps", "f.Verification = &p"},
	{"a step of the clock ends a hold", "header.go", "h.EpochHold = h.EpochHold.Add(step)", "_ = step"},
	{"a step is not recorded", "header.go", "h.Now, h.Steps = c.StepTo, h.Steps+step", "h.Now = c.StepTo"},
	{"a repeated step counts twice", "header.go", "\tif step <= 0 {", "\tif step < 0 || c.StepTo == 0 {\n\t\treturn DecisionAccepted\n\t}\n\tif step = max(step, 1000); step <= 0 {"},
	{"a step makes the provider remember for longer", "provider_window.go", "return f.FirstSend + Time((w - w/clockDriftDivisor).Milliseconds()), true", "return f.FirstSend + Time((w - w/clockDriftDivisor + f.Steps).Milliseconds()), true"},
	{"an older epoch is ended before its hold", "apply_sessions.go", "case c.Session.Epoch < h.LeaseEpoch && h.Now < h.EpochHold:", "case c.Session.Epoch < h.LeaseEpoch && h.Now < 0:"},
	{"the end of any session ends the attempt", "apply_sessions.go", "if holder == nil || holder.ID != c.Session.ID {", "if holder == nil {"},
	{"an end that names its session wrongly", "apply_sessions.go", "\tproof.Session = *holder\n", ""},
	{"an ended session stays assigned", "apply_sessions.go", "if f.Verifying() {\n\t\tt.releaseVerification()", "if f.Verifying() && t.header.Now < 0 {\n\t\tt.releaseVerification()\n\t} else if f.Verifying() {\n\t\treturn DecisionAccepted"},
	{"a callback ends with its session", "flight.go", "case f.State == StateRunning && f.OpenAttempt() != nil:", "case f.OpenAttempt() != nil:"},
	{"a session is withdrawn while its attempt is open", "apply_sessions.go", "case holder != nil && holder.ID == c.Session:\n\t\treturn DecisionBusy", "case holder != nil && holder.ID == c.Session:\n\t\treturn DecisionAccepted"},
	{"a withdrawal of another store epoch", "apply_sessions.go", "\tcase c.StoreEpoch != t.header.StoreEpoch:\n\t\treturn DecisionFenced\n\tcase holder", "\tcase c.StoreEpoch < 0:\n\t\treturn DecisionFenced\n\tcase holder"},
	{"an Open under a session that has ended", "apply_open.go", "case t.sessionHasEnded, c.Session.Epoch != t.header.LeaseEpoch:", "case c.Session.Epoch != t.header.LeaseEpoch:"},
	{"an Open under a session of another epoch", "apply_open.go", "case t.sessionHasEnded, c.Session.Epoch != t.header.LeaseEpoch:", "case t.sessionHasEnded:"},
	{"an Open of another store epoch", "apply_open.go", "if c.StoreEpoch != t.header.StoreEpoch {", "if c.StoreEpoch > 99 {"},
	{"an abandon of another store epoch", "apply_report.go", "if c.StoreEpoch != t.header.StoreEpoch {", "if c.StoreEpoch > 99 {"},
	{"a restored attempt never reports", "apply_restore.go", "token == t.header.TokenOf(a) || ", ""},
	{"a restored attempt proceeds with its old token", "apply.go", "reply.Token = v.Header.TokenOf(v.Flight.Newest())", "reply.Token = v.Flight.Newest().Token()"},
	{"a fenced report lands", "apply_report.go", "c.Generation == f.Generation && t.isTokenOf(a, c.Token)", "c.Generation == f.Generation && a.StoreEpoch >= c.Token.StoreEpoch"},
	{"a report of an old generation lands", "apply_report.go", "a != nil && c.Generation == f.Generation && t.isTokenOf(a, c.Token)", "a != nil && a.Number >= c.Token.Number && (t.isTokenOf(a, c.Token) || c.Generation != f.Generation)"},
	{"the number of a lost attempt is given again", "apply_report.go", "Number: max(f.Fence.Number, token.Number)}", "Number: f.Fence.Number}"},
	{"a lost flight starts again at the first generation", "apply_report.go", "f.Generation = max(f.Generation, c.Generation)", "_ = c.Generation"},
	{"an overlap is silent", "apply_report.go", "\tif second {\n\t\tt.raiseOverlap(&e)\n\t}\n", ""},
	{"overlaps are not looked for at the end", "apply.go", "\tt.clearLive(\"\")\n\tt.detectOverlaps()", "\tt.clearLive(\"\")"},
	{"a tombstone keeps every report", "apply_report.go", "if f.hasEvidence(&e) || f.State == StateExpired && !second {", "if f.hasEvidence(&e) {"},
	{"a tombstone keeps no second effect", "apply_report.go", "if f.hasEvidence(&e) || f.State == StateExpired && !second {", "if f.hasEvidence(&e) || f.State == StateExpired {"},
	{"a nonce opens twice", "apply_open.go", "case t.isUsedNonce(c.Nonce):", "case t.isUsedNonce(c.Nonce) && t.header.Now < 0:"},
	{"an Open that opened something is called expired", "apply_open.go", "\tcase t.isUsedNonce(c.Nonce):\n\t\treturn t.answerUsedNonce(c.Nonce)\n\tcase c.NotAfter < t.header.Now:\n\t\treturn DecisionOpenExpired\n", "\tcase c.NotAfter < t.header.Now:\n\t\treturn DecisionOpenExpired\n\tcase t.isUsedNonce(c.Nonce):\n\t\treturn t.answerUsedNonce(c.Nonce)\n"},
	{"a late Open opens", "apply_open.go", "case c.NotAfter < t.header.Now:", "case c.NotAfter < 0:"},
	{"an Open too far ahead opens", "apply_open.go", "case c.NotAfter > t.header.Now.Add(MaxOpenLife):", "case c.NotAfter > t.header.Now.Add(2*MaxOpenLife):"},
	{"not_after bars a repeat", "apply_open.go", "if d := t.answerRepeat(c.Nonce); d != DecisionNone {", "if d := t.answerRepeat(c.Nonce); d != DecisionNone && c.NotAfter >= t.header.Now {"},
	{"an Open too far ahead leaves its nonce unused", "apply_nonces.go", "\tt.useNonce(c.Nonce, c.NotAfter)\n\treturn DecisionOpenExpired", "\treturn DecisionOpenExpired"},
	{"a nonce is remembered for years", "apply_nonces.go", "case t.isUsedNonce(c.Nonce), c.NotAfter > t.header.Now.Add(MaxNonceLife):", "case t.isUsedNonce(c.Nonce):"},
	{"in doubt leaves the nonce unused", "apply_open.go", "\tt.useNonce(c.Nonce, c.NotAfter)\n\treturn DecisionInDoubt", "\treturn DecisionInDoubt"},
	{"a look-up leaves the nonce unused", "apply_open.go", "\tt.useNonce(c.Nonce, c.NotAfter)\n\treturn DecisionVerify", "\treturn DecisionVerify"},
	{"an abandon leaves the nonce unused", "apply_report.go", "\tt.useNonce(c.Nonce, c.NotAfter)\n\treturn DecisionAccepted", "\treturn DecisionAccepted"},
	{"the caller of a lost attempt is answered in doubt", "apply_nonces.go", "f.State == StateInDoubt && f.attemptByNonce(nonce) == nil {", "f.State == StateInDoubt {"},
	{"in doubt is not repeated", "apply_nonces.go", "f.State == StateInDoubt && f.attemptByNonce(nonce) == nil {", "f.State == StateAbsent {"},
	{"a used nonce is a new version", "apply_nonces.go", "t.keepsVersion = t.after == nil && t.before != nil", "t.keepsVersion = false"},
	{"a change keeps the version", "apply_nonces.go", "t.keepsVersion = t.after == nil && t.before != nil", "t.keepsVersion = t.before != nil"},
	{"nonces are forgotten early", "apply_nonces.go", "return u.Until < t.header.Now }", "return u.Until <= t.header.Now.Add(9e9) }"},
	{"nonces are never forgotten", "apply_nonces.go", "return u.Until < t.header.Now }", "return u.Until < 0 }"},
	{"an attempt's nonce is forgotten early", "apply_nonces.go", "if a.NotAfter < t.header.Now {", "if a.NotAfter <= t.header.Now.Add(9e9) {"},
	{"nonces without end", "apply_nonces.go", "return f != nil && len(f.UsedNonces) >= MaxUsedNonces && len", "return f != nil && len(f.UsedNonces) > 9999 && len"},
	{"expired nonces exhaust a flight", "apply_nonces.go", "len(t.unexpiredNonces(f.UsedNonces)) >= MaxUsedNonces", "len(f.UsedNonces) >= MaxUsedNonces"},
	{"nonces are forgotten with their generation", "apply.go", "next.UsedNonces = t.usedNoncesOf(old)", "next.UsedNonces = t.unexpiredNonces(old.UsedNonces)"},
	{"nonces are forgotten by the tombstone", "apply_resolve.go", "UsedNonces: t.usedNoncesOf(f)}", "UsedNonces: t.unexpiredNonces(f.UsedNonces)}"},
	{"trimmed attempts lose their nonce", "apply_open.go", "f.UsedNonces = t.appendNonceOf(f.UsedNonces, &f.Attempts[0])", "_ = t.appendNonceOf"},
	{"a record of used nonces is deleted early", "flight.go", "\treturn last + 1\n", "\treturn 1 + 0*last\n"},
	{"a record of evidence is deleted", "flight.go", "!f.Fence.IsZero() || f.Overlap ||\n\t\tlen(f.Evidence)+len(f.PreviousGenerations) > 0", "f.Overlap ||\n\t\tlen(f.PreviousGenerations) > 0"},
	{"a second asker proceeds", "apply_open.go", "case a != nil && a.Nonce == nonce && f.State == StateRunning:", "case a != nil && f.State == StateRunning:"},
	{"a repeat proceeds after it was suspended", "apply_open.go", "case a != nil && a.Nonce == nonce && f.State == StateRunning:", "case a != nil && a.Nonce == nonce:"},
	{"a repeat of Open is fenced", "apply_open.go", "case a != nil && a.Nonce == nonce && f.State == StateRunning:", "case a != nil && a.Nonce == nonce && f.State == StateAbsent:"},
	{"an abandon of another nonce ends the attempt", "apply_report.go", "case a != nil && a.Nonce == c.Nonce:", "case a != nil:"},
	{"an abandon leaves the attempt open", "apply_report.go", "case a != nil && a.Nonce == c.Nonce:", "case a != nil && a.Nonce == c.Nonce && !a.IsOpen():"},
	{"an abandon does not take back the doubt", "apply_report.go", "Note: Sanitize(c.Error)})\n\tt.untaintNewest()\n", "Note: Sanitize(c.Error)})\n"},
	{"an abandon takes back every doubt", "apply_report.go", "Note: Sanitize(c.Error)})\n\tt.untaintNewest()\n", "Note: Sanitize(c.Error)})\n\tt.untaintAll()\n"},
	{"an abandoned attempt counts as a retry", "apply_report.go", "\tt.uncountAttempt()\n\tt.emit(EventAbandoned", "\tt.emit(EventAbandoned"},
	{"an attempt that waits for its callback is abandoned", "apply_report.go", "case a.IsOpen() && f.State == StateWaiting:", "case a.IsOpen() && f.State == StateAbsent:"},
	{"a finding without an assigned look-up", "apply_report.go", " || f.Verification.Nonce == (Nonce{}) {", " {"},
	{"a look-up before the settle delay", "apply_open.go", "case t.header.Now < p.NotBefore:\n\t\treturn t.answerBusy(p.NotBefore)\n", ""},
	{"a look-up is given to a second caller at once", "apply_open.go", "case t.header.Now < p.Until:\n\t\treturn t.answerBusy(p.Until)\n", ""},
	{"a verify answer is not repeated", "apply_open.go", "case f.Verifying() && f.Verification.Nonce == nonce && nonce != (Nonce{}):", "case f.Verifying() && f.Verification.Nonce == nonce && nonce == (Nonce{}):"},
	{"a caller that gave up stays assigned", "apply_report.go", "case f.Verifying() && f.Verification.Nonce == c.Nonce:\n\t\tt.releaseVerification()\n", "case f.Verifying() && f.Verification.Nonce == c.Nonce:\n"},
	{"a new look-up has the number of the last one", "apply_open.go", "\tf.Verifications++\n", ""},
	{"an attempt opens outside the window", "apply_open.go", "if f.Tainted() && !f.WithinWindow(t.latestTime()) && !f.Policy.Saga {", "if f.TaintingAttempts > 9 {"},
	{"a stale driver starts a step", "apply_saga.go", "return driver != nil && t.header.TokenOf(driver) == s.Driver", "return driver != nil"},
	{"a step opens though its driver is over", "apply_saga.go", "\tdriver := t.saga.OpenAttempt()\n", "\tdriver := t.saga.Newest()\n"},
	{"a worker opens a step that was not submitted", "apply_saga.go", "return !t.absent()", "return true"},
	{"a stale driver turns the saga", "apply_saga.go", "t.header.TokenOf(a) != c.Token || !a.IsOpen() || f.Phase == PhaseNone", "f.Phase == PhaseNone"},
	{"the tombstone forgets the fence", "apply_resolve.go", "FinalState: f.State, Fence: f.Fence, Fingerprint", "FinalState: f.State, Fingerprint"},
	{"a counter of the guard key falls", "apply_resolve.go", "t.header.GuardCounter = max(t.header.GuardCounter, c.Counter)", "t.header.GuardCounter = c.Counter"},
	{"a counter of another epoch's guard key", "apply_resolve.go", "if c.Epoch != t.header.LeaseEpoch {", "if c.Epoch > 99 {"},
	{"a new epoch keeps the counter", "apply_resolve.go", "\t\tt.header.GuardCounter = 0\n", ""},
	{"refused clears taint under every policy", "apply_report.go", "keyHonoured := f.Policy.Saga || f.Policy.Recovery == RecoveryResend && f.providerRemembersKey(t.latestTime())", "keyHonoured := true"},
	{"refused clears taint outside the window", "apply_report.go", "keyHonoured := f.Policy.Saga || f.Policy.Recovery == RecoveryResend && f.providerRemembersKey(t.latestTime())", "keyHonoured := f.Policy.Saga || f.Policy.Recovery == RecoveryResend"},
	{"cancelled while tainted", "apply_resolve.go", "\tcase f.Tainted():\n\t\tt.verifyOrHold", "\tcase f.Tainted() && f.TaintingAttempts > 9:\n\t\tt.verifyOrHold"},
	{"cancelled on the way while tainted", "apply_recovery.go", "case f.Cancel != nil && f.Tainted():", "case f.Cancel != nil && f.TaintingAttempts > 9:"},
	{"failed while tainted", "apply_recovery.go", "case t.retriesExhausted(delay) && f.Tainted():", "case t.retriesExhausted(delay) && f.TaintingAttempts > 9:"},
	{"a reported attempt is abandoned", "apply_report.go", "case f.State.Terminal() || a.ReportedOutcomes != 0 || !a.IsOpen() && !a.Lost:", "case f.State.Terminal() || !a.IsOpen() && !a.Lost:"},
	{"a receipt is overwritten", "apply_report.go", "case isNewest && !f.State.Terminal():", "case isNewest && (!f.State.Terminal() || f.Receipt != nil):"},
	{"a late report is not kept", "apply_report.go", "f.Evidence = append(slices.Clip(f.Evidence), e)\n\t\treturn", "return"},
	{"full evidence leaves no room for a success", "apply_report.go", "if e.Outcome == OutcomeSucceeded && other >= 0 {", "if other > MaxEvidence {"},
	{"a late report of the newest attempt is refused", "apply_report.go", "case isNewest && !f.State.Terminal():", "case isNewest && !f.State.Terminal() && !a.Lost:"},
	{"a stale finding is accepted", "apply_report.go", "|| f.Verification.Number != c.Verification ||", "|| f.Verification.Number < c.Verification ||"},
	{"expire does not check retention", "apply_resolve.go", "case !f.State.Terminal() || t.header.Now < f.ExpiresAt():", "case !f.State.Terminal():"},
	{"the tombstone forgets the fingerprint", "apply_resolve.go", "Fence: f.Fence, Fingerprint: f.Fingerprint,", "Fence: f.Fence,"},
	{"the fence restarts with a generation", "apply.go", "Generation: old.Generation + 1, Fence: old.Fence,", "Generation: old.Generation + 1,"},
	{"a lost attempt leaves no doubt", "apply_open.go", "\tt.taint()\n\tt.applyRecovery(0)", "\tt.applyRecovery(0)"},
	{"hold is tried again", "apply_recovery.go", "\tdefault:\n\t\tt.holdForPerson(\"the effect", "\tdefault:\n\t\tt.reschedule(0)\n\t\treturn\n\t\tt.holdForPerson(\"the effect"},
	{"resend outside the window", "apply_recovery.go", "case f.Tainted() && !f.WithinWindow(t.latestTime().Add(delay)):", "case f.Tainted() && f.TaintingAttempts > 9:"},
	{"a window by a clock that is never slow", "provider_window.go", "Time((w - w/clockDriftDivisor).Milliseconds())", "Time(w.Milliseconds())"},
	{"a window without the time-out", "provider_window.go", "return end - Time(0).Add(f.Policy.AttemptTimeout), ok", "return end, ok"},
	{"a window by the ledger's time alone", "apply.go", "return t.header.Latest(t.header.Now) }", "return t.header.Now }"},
	{"a wall clock that is behind opens the window", "header.go", "now + max(0, h.Wall-h.Now)", "now + h.Wall - h.Now"},
	{"an answer counts only with the time-out to spare", "apply_report.go", "f.providerRemembersKey(t.latestTime())", "f.WithinWindow(t.latestTime())"},
	{"a closed window is no bound", "provider_window.go", "return max(0, until.Until(now)), true", "return until.Until(now), until > now"},
	{"the first attempt is bounded", "provider_window.go", "if !ok || !f.Tainted() || f.Policy", "if !ok || f.Policy"},
	{"retries without end", "apply_recovery.go", "return int(f.CountedAttempts) >= p.Attempts || late", "return late"},
	{"a person resolves an unseen version", "apply_resolve.go", "case f.State != StateInDoubt || f.Version != c.Version:", "case f.State != StateInDoubt:"},
	{"an approval of another input", "apply_resolve.go", "case c.Generation != f.Generation || c.Fingerprint != f.Fingerprint:", "case c.Generation != f.Generation:"},
	{"a succeeded flight is retried", "apply_resolve.go", "f.Generation != c.Generation || !f.Reopenable():", "f.Generation != c.Generation || !f.State.Terminal():"},
	{"a sealed key is let free", "apply_resolve.go", "!f.State.Terminal() || f.Sealed:", "!f.State.Terminal():"},
	{"an opened key is sealed", "apply_saga.go", "case f != nil && (f.Fence.Number > 0 || f.State.Terminal()):", "case f != nil && f.State.Terminal():"},
	{"forward steps open while undoing", "apply_saga.go", "return t.saga.Phase == PhaseForward", "return t.saga.Phase != PhaseNone"},
	{"conflict only after the end", "apply.go", "case !f.Fingerprint.Matches(fp):", "case !f.Fingerprint.Matches(fp) && f.State.Terminal():"},
	{"replay before conflict", "apply.go", "case !f.Fingerprint.Matches(fp):", "case !f.Fingerprint.Matches(fp) && !f.State.Terminal():"},
	{"a scheduled flight opens early", "apply_open.go", "if f.NotBefore > t.header.Now {\n\t\t\treturn t.answerBusy", "if f.NotBefore < 0 {\n\t\t\treturn t.answerBusy"},
	{"an approval is bypassed", "apply_open.go", "case StateAwaitingApproval:\n\t\treturn DecisionAwaitingApproval", "case StateAwaitingApproval:"},
	{"not done clears all doubt", "apply_report.go", "\tcase OutcomeNotDone:\n\t\tt.untaintNewest()", "\tcase OutcomeNotDone:\n\t\tt.untaintAll()"},
	{"an unknown outcome leaves no doubt", "apply_report.go", "\tdefault:\n\t\tt.taint()\n", "\tdefault:\n"},
	{"attempts beyond the kept ones lose their doubt", "apply_open.go", "f.Attempts = slices.Delete(f.Attempts, 0, 1)", "f.TaintingAttempts -= uint32(outcomeBit(0)) & uint32(f.Attempts[0].Outcome>>2)\n\t\tf.Attempts = slices.Delete(f.Attempts, 0, 1)"},
	{"Apply modifies its argument", "apply.go", "copied.Attempts = slices.Clone(copied.Attempts)", "_ = slices.Clone(copied.Attempts)"},
	{"look-ups without end", "apply_report.go", "if tries >= f.Policy.verifyAttempts() {", "if tries < 0 {"},
	{"Retry-After is not honoured", "apply_recovery.go", "return max(asked, f.Policy.Retry.Backoff(f.ID, int(f.CountedAttempts)))", "_ = asked\n\treturn f.Policy.Retry.Backoff(f.ID, int(f.CountedAttempts))"},
	{"a living flight loses its input", "apply_redact.go", "case f.State != StateAbsent && !f.State.Terminal():", "case f.State != StateAbsent && f.State == StateScheduled:"},
	{"redact keeps the input", "apply_redact.go", "\tf.Input = f.Input.erased()\n", ""},
	{"redact keeps the receipt", "apply_redact.go", "\tf.Receipt = f.Receipt.erased()\n", ""},
	{"redact keeps earlier receipts", "apply_redact.go", "f.PreviousGenerations[i].Receipt = f.PreviousGenerations[i].Receipt.erased()", "f.PreviousGenerations[i].Receipt = f.PreviousGenerations[i].Receipt"},
	{"redact forgets the receipt", "apply_redact.go", "\tf.Receipt = f.Receipt.erased()\n", "\tf.Receipt = nil\n"},
	{"redact forgets the digest", "apply_redact.go", "b.StoredSize, b.Data = 0, nil\n\treturn b", "return Blob{}"},
	{"a redact of another generation", "apply_redact.go", "case f.Generation != c.Generation:", "case f.Generation < c.Generation:"},
	{"a flight without input is retried", "flight.go", " && !f.Sealed && f.Redacted == nil", " && !f.Sealed"},
	{"an import overwrites a receipt", "apply_import.go", "case t.absent():\n\t\tt.createImported(c)", "case t.absent() || f.State == StateFailed:\n\t\tt.createImported(c)"},
	{"an import ends a living flight", "apply_import.go", "case t.absent():\n\t\tt.createImported(c)", "case t.absent() || f.State == StateReady:\n\t\tt.createImported(c)"},
	{"an import of a freed key", "apply_import.go", "f != nil && f.Generation > 1 && !t.header.Reconciling:", "f != nil && f.Generation > 9:"},
	{"an import of another input", "apply_import.go", "case !f.Fingerprint.Matches(c.Fingerprint):", "case !f.Fingerprint.Matches(c.Fingerprint) && f.State == StateRunning:"},
	{"an import of another receipt is taken for a repeat", "apply_import.go", "case f.Receipt == nil || !f.Receipt.SameEffect", "case f.Receipt == nil || f.Receipt.Source != SourceImport && !f.Receipt.SameEffect"},
	{"an import from the future", "apply_import.go", "return min(noted, later)", "return noted"},
	{"an import of a step", "apply_import.go", "case t.key.IsStep() || !c.Outcome.Final():", "case !c.Outcome.Final():"},
	{"an import without a receipt", "apply_import.go", "case t.key.IsStep() || !c.Outcome.Final():", "case t.key.IsStep():"},
	{"an import hides an overlap", "apply_import.go", "\tt.detectOverlaps()\n", ""},
	{"a restored ledger opens", "apply_open.go", "\tif t.header.Reconciling {", "\tif t.header.Reconciling && c.NotAfter < 0 {"},
	{"a lost success is evidence", "apply_restore.go", "\tcase c.Outcome == OutcomeSucceeded:", "\tcase c.Outcome == OutcomeNone:"},
	{"a lost success is evidence while an attempt is open", "apply_restore.go", "\tcase c.Outcome == OutcomeSucceeded:", "\tcase c.Outcome == OutcomeSucceeded && f.OpenAttempt() == nil:"},
	{"a lost refusal is final", "apply_restore.go", "\tcase c.Outcome == OutcomeSucceeded:", "\tcase c.Outcome.Final():"},
	{"a lost unknown leaves no doubt", "apply_restore.go", "f.TaintingAttempts++ // of", "_ = full // of"},
	{"a lost unknown is forgotten while an attempt is open", "apply_restore.go", "case c.Outcome == OutcomeUnknown && (f == nil", "case c.Outcome == OutcomeUnknown && f.OpenAttempt() == nil && (f == nil"},
	{"a repeated unknown is a second doubt", "apply_restore.go", "f != nil && f.hasEvidence(&e) {", "f == nil && f.hasEvidence(&e) {"},
	{"a repeat of a lost success is another one", "apply_restore.go", "r.Source == SourceReportAfterRestore &&", "r.Source == SourceImport &&"},
	{"the first token of a restored attempt is stale", "apply_restore.go", " || token == a.Token()", ""},
	{"a token is a number", "apply_restore.go", "token == t.header.TokenOf(a) || token == a.Token()", "token.Number == a.Number"},
	{"a restore keeps the lease epoch", "apply_restore.go", "\th.LeaseEpoch++\n", ""},
	{"a restore keeps the counter of the guard key", "apply_restore.go", "\th.GuardCounter = 0\n", ""},
	{"a hold that an Open outlives", "apply_restore.go", "max(c.Hold, MaxOpenLife)", "c.Hold"},
	{"two restores of one backup share an epoch", "apply_restore.go", "max(t.header.StoreEpoch+1, uint32(min(t.latestTime()/1000, last)))", "t.header.StoreEpoch + uint32(min(1, last))"},
	{"a moved directory is a restored one", "apply_restore.go", "case c.Moved:", "case c.Moved && c.From == 0:"},
	{"a restore is finished before its hold", "apply_restore.go", "h.Now < h.EpochHold && !c.Force:", "h.Now < 0 && !c.Force:"},
	{"a restore of another epoch is finished", "apply_restore.go", "case c.Epoch != h.StoreEpoch:", "case c.Epoch > h.StoreEpoch:"},
	{"a flight without input becomes ready", "apply_resolve.go", "case !f.Submitted():", "case f.Key.IsZero():"},
	{"a flight without a submission is retried", "flight.go", "f.Redacted == nil && f.Submitted()", "f.Redacted == nil"},
	{"hold is tried again after a lost unknown", "apply_recovery.go", "case f.Tainted() && f.Policy.Recovery != RecoveryResend:", "case f.TaintingAttempts > 9:"},
	{"an import of a refusal ends a restored flight", "apply_import.go", " && c.Outcome == OutcomeSucceeded && !f.Sealed", " && !f.Sealed"},
	{"an import changes a known flight after the restore", "apply_import.go", "f.Receipt == nil && t.header.Reconciling", "f.Receipt == nil && t.header.StoreEpoch > 1"},
	{"a redacted flight stores a lost receipt", "apply_restore.go", "\t\tr.Body = r.Body.erased()\n", ""},
	{"a redacted flight stores an imported receipt", "apply_import.go", "\t\t\tr.Body = r.Body.erased()\n", ""},
	{"a finding crashes without an attempt", "apply_report.go", "number := f.AttemptNumber() // 0", "number := f.Newest().Number // 0"},
}
