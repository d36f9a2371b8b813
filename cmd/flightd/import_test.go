package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
)

// receiptsFile writes a file of n receipts and returns its path.
func receiptsFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"key":"default/exec/old-%d","outcome":"succeeded","external_id":"ch_%d","body":{"exit_code":0,"stdout":"paid %d\n"},`+
			`"content_type":"application/vnd.flightd.exec+json","finished_at":"2026-01-0%dT10:00:00Z","retention":"3650d"}`+"\n", i, i, i, 1+i%9)
	}
	return tempFile(t, b.String())
}

func tempFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "receipts.ndjson")
	err := os.WriteFile(path, []byte(text), 0o600)
	require.NoError(t, err)
	return path
}

func decodeSummary(t *testing.T, r result) (sum importSummary) {
	t.Helper()
	err := json.Unmarshal([]byte(r.out), &sum)
	require.NoError(t, err, "%v: %v", err, r)
	return sum
}

func TestImport_TheFirstDayDoesNotRedoLastMonth(t *testing.T) {
	s, _ := startFake(t)
	const n = 1200 // several requests
	file := receiptsFile(t, n)
	sum := decodeSummary(t, s.flightd("import", file, "--dry-run", "-o", "json"))
	require.Equal(t, n, sum.Imported, "dry run: %+v", sum)
	require.True(t, sum.DryRun, "dry run: %+v", sum)
	require.Empty(t, s.flightd("flights", "ls", "-o", "id").out)
	first := decodeSummary(t, s.flightd("import", file, "-o", "json"))
	require.Equal(t, n, first.Imported, "first: %+v", first)
	require.Equal(t, 0, first.Existing, "first: %+v", first)
	require.Equal(t, n, first.Lines, "first: %+v", first)
	require.Empty(t, first.Differing, "first: %+v", first)
	again := decodeSummary(t, s.flightd("import", file, "-o", "json"))
	require.Equal(t, n, again.Existing, "again: %+v", again)
	require.Equal(t, 0, again.Imported, "again: %+v", again)
	ran := s.flightd("exec", "--key", "old-7", "--fingerprint", "none", "--", "sh", "-c", "echo paid once more")
	require.Equal(t, 0, ran.code, "it ran: %v", ran)
	require.Equal(t, "paid 7\n", ran.out, "it ran: %v", ran)
	why := s.flightd("why", "old-7")
	require.Contains(t, why.out, "imported its receipt", "why: %v", why)
}

func TestImport_SaysWhichLineIsWrongAndGoesOnFromThere(t *testing.T) {
	s, _ := startFake(t)
	good := `{"key":"default/charge/a","outcome":"succeeded","external_id":"1"}` + "\n"
	file := tempFile(t, good+"\n"+`{"key":"default/charge/b","outcome":"done"}`+"\n"+`{"key":"default/charge/c","outcome":"refused"}`+"\n")
	r := s.flightd("import", file, "-o", "json")
	require.Equal(t, cli.ExitUsage, r.code, "a bad line: %v", r)
	require.Contains(t, r.err, "line 3: ", "a bad line: %v", r)
	require.Contains(t, r.err, "outcome", "a bad line: %v", r)
	require.Empty(t, r.out, "a bad line: %v", r)
	r = s.flightd("import", file, "--keep-going", "-o", "json")
	sum := decodeSummary(t, r)
	require.Equal(t, cli.ExitFailed, r.code, "--keep-going: %v", r)
	require.Equal(t, 1, sum.Imported, "--keep-going: %v", r)
	require.Equal(t, 1, sum.Existing, "--keep-going: %v", r)
	require.Equal(t, 1, sum.Unread, "--keep-going: %v", r)
	require.Contains(t, r.err, "line 3", "--keep-going: %v", r)
	other := tempFile(t, good+strings.Replace(good, `"1"`, `"2"`, 1))
	r = s.flightd("import", other)
	require.Equal(t, cli.ExitFailed, r.code, "another receipt: %v", r)
	require.Contains(t, r.out, "line 2: default/charge/a: the flight has another receipt: succeeded 1", "another receipt: %v", r)
	r = s.flightd("import", tempFile(t, "\ufeff"+good))
	require.True(t, strings.HasPrefix(r.out, "1 line in "), "one line: %v", r)
	require.Contains(t, r.out, "1 existed already", "one line: %v", r)
	r = s.flightd("import", tempFile(t, good), "-n", "billing")
	require.Equal(t, cli.ExitUsage, r.code, "another namespace: %v", r)
	require.Contains(t, r.err, "namespace", "another namespace: %v", r)
	r = s.flightd("import", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, cli.ExitUsage, r.code, "no file: %v", r)
}

func TestRedact_TheOutputIsGoneAndTheKeyIsGuarded(t *testing.T) {
	s, _ := startFake(t)
	if r := s.flightd("exec", "--key", "secret", "--", "sh", "-c", "echo canary-7f"); r.out != "canary-7f\n" {
		t.Fatal(r)
	}
	r := s.flightd("flights", "redact", "exec/secret", "--reason", "ticket 12", "--actor", "ann", "--yes")
	require.Equal(t, 0, r.code, "redact: %v", r)
	require.NotContains(t, r.out, "canary", "redact: %v", r)
	require.Contains(t, r.out, "by ann: ticket 12", "redact: %v", r)
	r = s.flightd("why", "exec/secret")
	require.Contains(t, r.out, "ann erased its input and receipt (ticket 12)", "why: %v", r)
	r = s.flightd("exec", "--key", "secret", "--", "sh", "-c", "echo canary-7f")
	require.NotContains(t, r.out, "canary", "it ran again, or its output is still stored: %v", r)
	require.Equal(t, cli.ExitTruncated, r.code, "it ran again, or its output is still stored: %v", r)
	require.Contains(t, r.err, "nothing was run", "no message that the output is erased: %v", r)
	require.Contains(t, r.err, "are erased", "no message that the output is erased: %v", r)
	status := s.get("/v1/flights/"+s.flight("default/exec/secret").ID+"/receipt", nil)
	require.Equal(t, http.StatusGone, status, "the receipt answers %d", status)
}

// TestRedact_LaterCallSaysErased: a later exec prints that the body is erased, even if exec did not write the receipt.
func TestRedact_LaterCallSaysErased(t *testing.T) {
	s, _ := startFake(t)
	file := tempFile(t, `{"key":"default/charge/o-1","outcome":"succeeded","body":{"canary":1}}`)
	r := s.flightd("import", file)
	require.Equal(t, 0, r.code, r)
	r = s.flightd("flights", "redact", "charge/o-1", "--reason", "a test", "--yes")
	require.Equal(t, 0, r.code, r)
	for flag, code := range map[string]int{"--recovery=hold": cli.ExitTruncated, "--allow-truncated": 0} {
		r = s.flightd("exec", "--key", "charge/o-1", flag, "--", "echo", "ran")
		require.Equal(t, code, r.code, "got %v", r)
		require.Empty(t, r.out, "got %v", r)
		require.Contains(t, r.err, "its 12 bytes are erased", "got %v", r)
	}
}

// TestRedact_NoRetryWithoutAnInput: the hint names retry only if retry is possible.
func TestRedact_NoRetryWithoutAnInput(t *testing.T) {
	s, _ := startFake(t)
	run := []string{"exec", "--key", "gone", "--not-done-exit", "75", "--", "sh", "-c", "exit 75"}
	s.flightd(run...)
	r := s.flightd("flights", "cancel", "gone", "--reason", "a test")
	require.Equal(t, 0, r.code, r)
	r = s.flightd(run...)
	require.Equal(t, cli.ExitFailed, r.code, "cancelled: %v", r)
	require.Contains(t, r.err, "run flightd flights retry default/exec/gone --reason WHY to let it run again", "cancelled: %v", r)
	r = s.flightd("flights", "redact", "gone", "--reason", "a test", "--yes")
	require.Equal(t, 0, r.code, r)
	r = s.flightd(run...)
	require.Equal(t, cli.ExitFailed, r.code, "its input erased: %v", r)
	require.NotContains(t, r.err, "to let it run again", "its input erased: %v", r)
	require.Contains(t, r.err, "use a new id", "its input erased: %v", r)
}

// TestFree_TheKeyActsAgain: a key can be freed after its receipt has expired, as the hint says, and before.
func TestFree_TheKeyActsAgain(t *testing.T) {
	s, world := startFake(t)
	key := flight.MustKey("default/exec/order")
	world.Apply(t, &flight.Import{Key: key, Outcome: flight.OutcomeSucceeded, FinishedAt: 1})
	world.Apply(t, &flight.Expire{Key: key, Generation: 1})
	run := []string{"exec", "--key", "order", "--fingerprint", "none", "--", "echo", "ran"}
	r := s.flightd(run...)
	require.Empty(t, r.out, "guarded by a tombstone: %v", r)
	require.Contains(t, r.err, "flights free", "guarded by a tombstone: %v", r)
	for range 2 { // a tombstone, then a receipt
		r := s.flightd("flights", "free", "exec/order", "--reason", "another order of that number", "--actor", "ann", "--yes")
		require.Equal(t, 0, r.code, "free: %v", r)
		require.Contains(t, r.err, "free; the next call with this key acts", "got %v", r)
		require.Regexp(t, "by ann: another order of that number; its state was (expired|succeeded)", r.out)
		for _, untrue := range []string{"attempts", "fingerprint"} {
			require.NotContains(t, r.out, untrue, "the output contains %q: %s", untrue, r.out)
		}
		r = s.flightd(run...)
		require.Equal(t, 0, r.code, "it did not run: %v", r)
		require.Equal(t, "ran\n", r.out, "it did not run: %v", r)
		require.NotContains(t, r.err, "nothing was run", "it did not run: %v", r)
	}
	r = s.flightd("why", "exec/order")
	require.Contains(t, r.out, "ann", "why: %v", r)
	require.Contains(t, r.out, "another order of that number", "why: %v", r)
}

// TestImport_DryRunReportsEveryInvalidLine: the first hundred in full, then their number. Real imports stop at the
// first one.
func TestImport_DryRunReportsEveryInvalidLine(t *testing.T) {
	s, _ := startFake(t)
	const good = `{"key":"default/charge/%d","outcome":"succeeded"}` + "\n"
	var text strings.Builder
	for n := range 103 {
		fmt.Fprintf(&text, good, n)
		text.WriteString("{}\n")
	}
	file := tempFile(t, text.String()+strings.Repeat("x", maxLine+1)+"\n"+fmt.Sprintf(good, 200))
	r := s.flightd("import", file, "--dry-run").want(t, cli.ExitUsage, "", "line 2: ")
	require.Contains(t, r.err, "line 200: ")
	require.NotContains(t, r.err, "line 202: ")
	require.Contains(t, r.err, "4 more invalid lines are not shown\n")
	require.Contains(t, r.err, "104 lines are invalid\n")
	require.Contains(t, r.err, "208 lines, 104 would be imported")
	require.Contains(t, r.err, "nothing was changed")

	long := tempFile(t, strings.Repeat("x", maxLine+1)+"\n"+fmt.Sprintf(good, 1))
	r = s.flightd("import", long, "--dry-run").want(t, cli.ExitUsage, "", fmt.Sprintf("line 1: longer than %d bytes\n", maxLine))
	require.Contains(t, r.err, "1 line is invalid\n")
	r = s.flightd("import", long).want(t, cli.ExitUsage, "", "line 1: longer than")
	require.Contains(t, r.err, "0 imported", "an import stops at the first invalid line")
	s.flightd("import", long, "--keep-going").want(t, cli.ExitFailed, "1 imported", "")
}
