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
)

// TestMutants breaks the rules on purpose, one at a time, and wants the other tests of this package to notice. It
// builds each broken version by an overlay; no file is touched.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			source, err := os.ReadFile(m.file)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(source, []byte(m.old)) != 1 {
				t.Fatalf("the code to break does not stand exactly once in %s; say again where it is", m.file)
			}
			out, caught := runMutant(t, m.file, bytes.Replace(source, []byte(m.old), []byte(m.broken), 1))
			switch {
			case bytes.Contains(out, []byte("[build failed]")):
				t.Fatalf("it does not build:\n%s", out)
			case !caught:
				t.Errorf("nobody noticed")
			default:
				t.Logf("caught by %s", caughtBy(out))
			}
		})
	}
}

func runMutant(t *testing.T, file string, broken []byte) (out []byte, caught bool) {
	t.Helper()
	dir := t.TempDir()
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	replacement := filepath.Join(dir, filepath.Base(file))
	overlay := filepath.Join(dir, "overlay.json")
	table, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{replacement: broken, overlay: table} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err = exec.CommandContext(t.Context(), "go", "test", "-short", "-vet=off", "-failfast", "-overlay", overlay, ".", "-rapid.shrinktime", "0s", "-rapid.nofailfile").CombinedOutput()
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
	{"no fence check", "apply_open.go", "return f == nil || t.nextToken(claim).Compare(f.Fence) > 0", "return f == nil || f != nil"},
	{"an older claim takes over", "apply_open.go", "case order < 0:\n\t\treturn Fenced", "case order < -1:\n\t\treturn Fenced"},
	{"the same claim takes over from itself", "apply_open.go", "case order == 0:\n\t\treturn Busy", "case order == 2:\n\t\treturn Busy"},
	{"refused clears taint under every policy", "apply_report.go", "honoured := f.Policy.Saga || f.Policy.Recovery == Resend && f.WithinWindow(t.header.Now)", "honoured := true"},
	{"refused clears taint outside the window", "apply_report.go", "honoured := f.Policy.Saga || f.Policy.Recovery == Resend && f.WithinWindow(t.header.Now)", "honoured := f.Policy.Saga || f.Policy.Recovery == Resend"},
	{"cancelled while tainted", "apply_settle.go", "\tcase f.Tainted():\n\t\tt.escalate", "\tcase f.Tainted() && f.Doubts > 9:\n\t\tt.escalate"},
	{"cancelled on the way while tainted", "apply.go", "case f.Cancel != nil && f.Tainted():", "case f.Cancel != nil && f.Doubts > 9:"},
	{"failed while tainted", "apply.go", "case t.spent(delay) && f.Tainted():", "case t.spent(delay) && f.Doubts > 9:"},
	{"a reported attempt is abandoned", "apply_report.go", "case f.State.Terminal() || a.Reported != 0 || !a.Open() && !a.Lost:", "case f.State.Terminal() || !a.Open() && !a.Lost:"},
	{"an attempt whose caller was told to act is abandoned", "apply_report.go", "case a.Told && !c.ByCaller,", "case a.Told && c.ByCaller,"},
	{"what another sending opened is abandoned", "apply_report.go", "a.Claim.Session == c.Session && (c.Claim == Claim{} || a.Claim == c.Claim)", "a.Claim.Session == c.Session"},
	{"an attempt that waits for its callback is abandoned", "apply_report.go", ", a.Open() && f.State == Waiting:", ", a.Open() && f.State == Absent:"},
	{"a repeat of an Open is not noted", "apply_open.go", "t.newest().Told = true", "t.newest().Told = t.header.Now < 0"},
	{"a repeat of an Open opens", "apply_open.go", "if c.Repeat {\n\t\treturn Fenced", "if c.Repeat && t.header.Now < 0 {\n\t\treturn Fenced"},
	{"a nonce opens twice", "apply_open.go", "if late || t.isSpent(c.Claim.Session, c.Nonce) {", "if late {"},
	{"an abandoned nonce is not remembered", "apply_report.go", "SpentNonce{Session: c.Session, Nonce: c.Nonce, Until: c.NotAfter}", "SpentNonce{}"},
	{"nonces are forgotten with their generation", "apply.go", "next.Spent = t.spentOf(old)", "next.Spent = t.stillSpent(old.Spent)"},
	{"nonces are forgotten by the tombstone", "apply_settle.go", "Spent: t.spentOf(f)}", "Spent: t.stillSpent(f.Spent)}"},
	{"a late Open opens", "apply_open.go", "late := c.NotAfter < t.header.Now ||", "late := c.NotAfter < 0 ||"},
	{"a second asker proceeds", "apply_open.go", "a.Nonce == nonce && a.Claim.Session == session\n}", "a.Claim.Session == session\n}"},
	{"a receipt is overwritten", "apply_report.go", "if f.State.Terminal() {\n\t\treturn t.fence(c)\n\t}\n\tt.accept(c)", "if f.State.Terminal() && f.Receipt == nil {\n\t\treturn t.fence(c)\n\t}\n\tt.accept(c)"},
	{"a fenced report lands", "apply_report.go", "if c.Generation != f.Generation || a == nil || a.Token() != c.Token {\n\t\treturn t.fence(c)", "if c.Generation != f.Generation || a == nil || a.Token().Epoch != c.Token.Epoch {\n\t\treturn t.fence(c)"},
	{"a report of an old generation lands", "apply_report.go", "if c.Generation != f.Generation || a == nil || a.Token() != c.Token {\n\t\treturn t.fence(c)", "if a == nil || a.Token().Number < c.Token.Number || a.Token() != c.Token && c.Generation == f.Generation {\n\t\treturn t.fence(c)"},
	{"a late report is not kept", "apply_report.go", "f.Evidence = append(slices.Clip(f.Evidence), e)\n\t\treturn", "return"},
	{"full evidence leaves no room for a success", "apply_report.go", "if e.Outcome == Succeeded && other >= 0 {", "if other > MaxEvidence {"},
	{"an overlap is silent", "apply_report.go", "\tt.edit().Overlap = true\n", ""},
	{"overlaps are not looked for at the end", "apply.go", "\tt.end(\"\")\n\tt.compareAll()", "\tt.end(\"\")"},
	{"a late report of the newest attempt is refused", "apply_report.go", "\tif f.State.Terminal() {\n\t\treturn t.fence(c)", "\tif f.State.Terminal() || a.Lost {\n\t\treturn t.fence(c)"},
	{"a stale verdict is accepted", "apply_report.go", "|| f.Probe.Number != c.Probe ||", "|| f.Probe.Number < c.Probe ||"},
	{"a verdict nobody was sent for", "apply_report.go", " || f.Probe.Claim == (Claim{}) {", " {"},
	{"look before the settle delay", "apply_open.go", "case t.header.Now < p.NotBefore:\n\t\treturn t.busy(p.NotBefore)\n", ""},
	{"expire does not check retention", "apply_settle.go", "case !f.State.Terminal() || t.header.Now < f.ExpiresAt():", "case !f.State.Terminal():"},
	{"the tombstone forgets the fingerprint", "apply_settle.go", "Fence: f.Fence, Fingerprint: f.Fingerprint,", "Fence: f.Fence,"},
	{"the tombstone forgets the fence", "apply_settle.go", "Was: f.State, Fence: f.Fence, Fingerprint", "Was: f.State, Fingerprint"},
	{"the fence restarts with a generation", "apply.go", "Generation: old.Generation + 1, Fence: old.Fence,", "Generation: old.Generation + 1,"},
	{"a lost attempt leaves no doubt", "apply_open.go", "\tt.doubt()\n\tt.settleDoubt(0)", "\tt.settleDoubt(0)"},
	{"hold is tried again", "apply.go", "\tdefault:\n\t\tt.hold(\"the effect", "\tdefault:\n\t\tt.again(0)\n\t\tif t.absent() {\n\t\t\tt.again(0)\n\t\t}\n\t\treturn\n\t\tt.hold(\"the effect"},
	{"resend outside the window", "apply.go", "case f.Tainted() && !f.WithinWindow(t.header.Now.Add(delay)):", "case f.Tainted() && f.Doubts > 9:"},
	{"take-off outside the window", "apply_open.go", "if f.Tainted() && !f.WithinWindow(t.header.Now) && !f.Policy.Saga {", "if f.Doubts > 9 {"},
	{"retries without end", "apply.go", "return int(f.Counted) >= p.Attempts || late", "return late"},
	{"a person settles what they did not see", "apply_settle.go", "case f.State != InDoubt || f.Version != c.Version:", "case f.State != InDoubt:"},
	{"an approval of another input", "apply_settle.go", "case c.Generation != f.Generation || c.Fingerprint != f.Fingerprint:", "case c.Generation != f.Generation:"},
	{"a succeeded flight is retried", "apply_settle.go", "f.Generation != c.Generation || !f.Reopenable():", "f.Generation != c.Generation || !f.State.Terminal():"},
	{"a sealed key is let free", "apply_settle.go", "!f.State.Terminal() || f.Sealed:", "!f.State.Terminal():"},
	{"an opened key is sealed", "apply_saga.go", "case f != nil && (f.Fence.Number > 0 || f.State.Terminal()):", "case f != nil && f.State.Terminal():"},
	{"a stale driver starts a step", "apply_saga.go", "return driver != nil && driver.Token() == s.Driver", "return driver != nil"},
	{"forward steps open while undoing", "apply_saga.go", "return t.saga.Phase == Forward", "return t.saga.Phase != NoPhase"},
	{"a stale driver turns the saga", "apply_saga.go", "a.Token() != c.Token || !a.Open() || f.Phase == NoPhase", "f.Phase == NoPhase"},
	{"conflict only after the end", "apply.go", "case !f.Fingerprint.Matches(fp):", "case !f.Fingerprint.Matches(fp) && f.State.Terminal():"},
	{"replay before conflict", "apply.go", "case !f.Fingerprint.Matches(fp):", "case !f.Fingerprint.Matches(fp) && !f.State.Terminal():"},
	{"an Open of another epoch", "apply_open.go", "if c.Claim.Epoch != t.header.LeaseEpoch || c.StoreEpoch != t.header.StoreEpoch {", "if c.StoreEpoch != t.header.StoreEpoch {"},
	{"an Open of another store epoch", "apply_open.go", "if c.Claim.Epoch != t.header.LeaseEpoch || c.StoreEpoch != t.header.StoreEpoch {", "if c.Claim.Epoch != t.header.LeaseEpoch {"},
	{"an old epoch is taken over at once", "apply_open.go", "case a.Claim.Epoch < t.header.LeaseEpoch && t.header.Now < t.header.EpochHold:", "case a.Claim.Epoch < t.header.LeaseEpoch && t.header.Now < 0:"},
	{"a callback is given up early", "apply_open.go", "if f.Wake.At == 0 || t.header.Now < f.Wake.At {", "if f.Wake.At == 0 {"},
	{"a scheduled flight opens early", "apply_open.go", "if f.NotBefore > t.header.Now {\n\t\t\treturn t.busy", "if f.NotBefore < 0 {\n\t\t\treturn t.busy"},
	{"an approval is passed by", "apply_open.go", "case AwaitingApproval:\n\t\treturn Unapproved", "case AwaitingApproval:"},
	{"not done clears all doubt", "apply_report.go", "\tcase NotDone:\n\t\tt.undoubt()", "\tcase NotDone:\n\t\tt.clear()"},
	{"an unknown outcome leaves no doubt", "apply_report.go", "\tdefault:\n\t\tt.doubt()\n", "\tdefault:\n"},
	{"attempts beyond the kept ones lose their doubt", "apply_open.go", "f.Attempts = slices.Delete(f.Attempts, 0, 1)", "f.Doubts -= uint32(bit(0)) & uint32(f.Attempts[0].Outcome>>2)\n\t\tf.Attempts = slices.Delete(f.Attempts, 0, 1)"},
	{"trimmed attempts lose their nonce", "apply_open.go", "f.Spent = t.spend(f.Spent, &f.Attempts[0])", "_ = t.spend"},
	{"Apply writes into what it was given", "apply.go", "copied.Attempts = slices.Clone(copied.Attempts)", "_ = slices.Clone(copied.Attempts)"},
	{"a repeat of Open is fenced", "apply_open.go", "if t.flying(c.Claim.Session, c.Nonce) {", "if t.flying(c.Claim.Session, c.Nonce) && t.header.Now < 0 {"},
	{"a revision falls", "apply_open.go", "t.header.MaxRevision = max(t.header.MaxRevision, c.Revision)", "t.header.MaxRevision = c.Revision"},
	{"look-ups without end", "apply_report.go", "if tries >= f.Policy.lookTries() {", "if tries < 0 {"},
	{"Retry-After is not honoured", "apply.go", "return max(asked, f.Policy.Retry.Backoff(f.ID, int(f.Counted)))", "_ = asked\n\treturn f.Policy.Retry.Backoff(f.ID, int(f.Counted))"},
	{"a living flight loses its input", "apply_past.go", "case f.State != Absent && !f.State.Terminal():", "case f.State != Absent && f.State == Scheduled:"},
	{"redact keeps the input", "apply_past.go", "\tf.Input = f.Input.erased()\n", ""},
	{"redact keeps the receipt", "apply_past.go", "\tf.Receipt = f.Receipt.erased()\n", ""},
	{"redact keeps earlier receipts", "apply_past.go", "f.Past[i].Receipt = f.Past[i].Receipt.erased()", "f.Past[i].Receipt = f.Past[i].Receipt"},
	{"redact forgets the receipt", "apply_past.go", "\tf.Receipt = f.Receipt.erased()\n", "\tf.Receipt = nil\n"},
	{"redact forgets the digest", "apply_past.go", "b.Kept, b.Data = 0, nil\n\treturn b", "return Blob{}"},
	{"a redact of another generation", "apply_past.go", "case f.Generation != c.Generation:", "case f.Generation < c.Generation:"},
	{"a flight without input is retried", "flight.go", " && !f.Sealed && f.Redacted == nil", " && !f.Sealed"},
	{"an import overwrites a receipt", "apply_past.go", "case t.absent():\n\t\tt.adopt(c)", "case t.absent() || f.State == StateFailed:\n\t\tt.adopt(c)"},
	{"an import ends a living flight", "apply_past.go", "case t.absent():\n\t\tt.adopt(c)", "case t.absent() || f.State == Queued:\n\t\tt.adopt(c)"},
	{"an import stops what a person freed", "apply_past.go", "case t.absent() && f != nil && f.Generation > 1:", "case t.absent() && f != nil && f.Generation > 9:"},
	{"an import of another input", "apply_past.go", "case !f.Fingerprint.Matches(c.Fingerprint):", "case !f.Fingerprint.Matches(c.Fingerprint) && f.State == Running:"},
	{"an import of another receipt is taken for a repeat", "apply_past.go", "case f.Receipt == nil || !f.Receipt.SameEffect", "case f.Receipt == nil || f.Receipt.Source != FromImport && !f.Receipt.SameEffect"},
	{"an import from the future", "apply_past.go", "return min(noted, later)", "return noted"},
	{"an import of a step", "apply_past.go", "case t.key.IsStep() || !c.Outcome.Final():", "case !c.Outcome.Final():"},
	{"an import without a receipt", "apply_past.go", "case t.key.IsStep() || !c.Outcome.Final():", "case t.key.IsStep():"},
	{"an import hides an overlap", "apply_past.go", "\tt.compareAll()\n", ""},
}
