package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
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
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func decodeSummary(t *testing.T, r result) (sum importSummary) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	return sum
}

func TestImport_TheFirstDayDoesNotRedoLastMonth(t *testing.T) {
	s := startServer(t)
	const n = 25_000
	file := receiptsFile(t, n)
	if sum := decodeSummary(t, s.flightd("import", file, "--dry-run", "-o", "json")); sum.Imported != n || !sum.DryRun {
		t.Fatalf("dry run: %+v", sum)
	}
	if status := s.get("/v1/flights/fl_aaaaaaaaaaaaaaaaaaaaaaaaaa", nil); status != http.StatusNotFound {
		t.Fatalf("status %d", status)
	}
	first := decodeSummary(t, s.flightd("import", file, "-o", "json"))
	if first.Imported != n || first.Existing != 0 || first.Lines != n || len(first.Differing) > 0 {
		t.Fatalf("first: %+v", first)
	}
	t.Logf("%.0f lines/s", n/first.Seconds)
	if again := decodeSummary(t, s.flightd("import", file, "-o", "json")); again.Existing != n || again.Imported != 0 {
		t.Fatalf("again: %+v", again)
	}
	ran := s.flightd("exec", "--key", "old-7", "--fingerprint", "none", "--", "sh", "-c", "echo paid once more")
	if ran.code != 0 || ran.out != "paid 7\n" {
		t.Errorf("it ran: %v", ran)
	}
	why := s.flightd("why", "old-7")
	if !strings.Contains(why.out, "imported its receipt") {
		t.Errorf("why: %v", why)
	}
	s.kill()
	s.start()
	if again := decodeSummary(t, s.flightd("import", file, "-o", "json")); again.Existing != n {
		t.Fatalf("after a crash: %+v", again)
	}
}

func TestImport_SaysWhichLineIsWrongAndGoesOnFromThere(t *testing.T) {
	s := startServer(t)
	good := `{"key":"default/charge/a","outcome":"succeeded","external_id":"1"}` + "\n"
	file := tempFile(t, good+"\n"+`{"key":"default/charge/b","outcome":"done"}`+"\n"+`{"key":"default/charge/c","outcome":"refused"}`+"\n")
	r := s.flightd("import", file, "-o", "json")
	if r.code != exitUsage || !strings.Contains(r.err, "line 3: ") || !strings.Contains(r.err, "outcome") || r.out != "" {
		t.Errorf("a bad line: %v", r)
	}
	r = s.flightd("import", file, "--keep-going", "-o", "json")
	if sum := decodeSummary(t, r); r.code != exitFailed || sum.Imported != 1 || sum.Existing != 1 || sum.Unread != 1 || !strings.Contains(r.err, "line 3") {
		t.Errorf("--keep-going: %v", r)
	}
	other := tempFile(t, good+strings.Replace(good, `"1"`, `"2"`, 1))
	r = s.flightd("import", other)
	if r.code != exitFailed || !strings.Contains(r.out, "line 2: default/charge/a: the flight has another receipt: succeeded 1") {
		t.Errorf("another receipt: %v", r)
	}
	if r = s.flightd("import", tempFile(t, good)); !strings.HasPrefix(r.out, "1 line in ") || !strings.Contains(r.out, "1 existed already") {
		t.Errorf("one line: %v", r)
	}
	if r = s.flightd("import", tempFile(t, good), "-n", "billing"); r.code != exitUsage || !strings.Contains(r.err, "namespace") {
		t.Errorf("another namespace: %v", r)
	}
	if r = s.flightd("import", filepath.Join(t.TempDir(), "none")); r.code != exitUsage {
		t.Errorf("no file: %v", r)
	}
}

func TestRedact_TheOutputIsGoneAndTheKeyIsGuarded(t *testing.T) {
	s := startServer(t)
	if r := s.flightd("exec", "--key", "secret", "--", "sh", "-c", "echo canary-7f"); r.out != "canary-7f\n" {
		t.Fatal(r)
	}
	r := s.flightd("flights", "redact", "exec/secret", "--reason", "ticket 12", "--actor", "ann", "--yes")
	if r.code != 0 || strings.Contains(r.out, "canary") || !strings.Contains(r.out, "by ann: ticket 12") {
		t.Fatalf("redact: %v", r)
	}
	if r = s.flightd("why", "exec/secret"); !strings.Contains(r.out, "ann erased its input and receipt (ticket 12)") {
		t.Errorf("why: %v", r)
	}
	if r = s.flightd("exec", "--key", "secret", "--", "sh", "-c", "echo canary-7f"); strings.Contains(r.out, "canary") || r.code == 0 {
		t.Errorf("it ran again, or its output is still stored: %v", r)
	}
	if !strings.Contains(r.err, "succeeded at ") || !strings.Contains(r.err, "nothing was run") || !strings.Contains(r.err, "are erased") {
		t.Errorf("no message that the output is erased: %v", r)
	}
	if status := s.get("/v1/flights/"+s.flight("default/exec/secret").ID+"/receipt", nil); status != http.StatusGone {
		t.Errorf("the receipt answers %d", status)
	}
}

// TestRedact_LaterCallSaysErased: a later exec prints that the body is erased, even if exec did not write the receipt.
func TestRedact_LaterCallSaysErased(t *testing.T) {
	s := startServer(t)
	file := tempFile(t, `{"key":"default/charge/o-1","outcome":"succeeded","body":{"canary":1}}`)
	if r := s.flightd("import", file); r.code != 0 {
		t.Fatal(r)
	}
	if r := s.flightd("flights", "redact", "charge/o-1", "--reason", "a test", "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	if r := s.flightd("exec", "--key", "charge/o-1", "--", "echo", "ran"); r.code != 0 || r.out != "" || !strings.Contains(r.err, "its 12 bytes are erased") {
		t.Errorf("got %v", r)
	}
}

// TestRedact_NoRetryWithoutAnInput: the hint names retry only if retry is possible.
func TestRedact_NoRetryWithoutAnInput(t *testing.T) {
	s := startServer(t)
	run := []string{"exec", "--key", "gone", "--not-done-exit", "75", "--", "sh", "-c", "exit 75"}
	s.flightd(run...)
	if r := s.flightd("flights", "cancel", "gone", "--reason", "a test"); r.code != 0 {
		t.Fatal(r)
	}
	if r := s.flightd(run...); r.code != exitFailed || !strings.Contains(r.err, "run flightd flights retry default/exec/gone --reason WHY to let it run again") {
		t.Errorf("cancelled: %v", r)
	}
	if r := s.flightd("flights", "redact", "gone", "--reason", "a test", "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	if r := s.flightd(run...); r.code != exitFailed || strings.Contains(r.err, "to let it run again") || !strings.Contains(r.err, "use a new id") {
		t.Errorf("its input erased: %v", r)
	}
}

// TestFree_TheKeyActsAgain: a key can be freed after its receipt has expired, as the hint says, and before.
func TestFree_TheKeyActsAgain(t *testing.T) {
	s := startServer(t)
	expired := tempFile(t, `{"key":"default/exec/order","outcome":"succeeded","retention":"1s"}`)
	if r := s.flightd("import", expired); r.code != 0 {
		t.Fatal(r)
	}
	run := []string{"exec", "--key", "order", "--fingerprint", "none", "--", "echo", "ran"}
	eventually(t, "its retention ends", 30*time.Second, func() bool { return s.flight("exec/order").State == "expired" })
	if r := s.flightd(run...); r.out != "" || !strings.Contains(r.err, "flights free") {
		t.Fatalf("guarded by a tombstone: %v", r)
	}
	for range 2 { // a tombstone, then a receipt
		if r := s.flightd("flights", "free", "exec/order", "--reason", "another order of that number", "--actor", "ann", "--yes"); r.code != 0 {
			t.Fatalf("free: %v", r)
		}
		if r := s.flightd(run...); r.code != 0 || r.out != "ran\n" || strings.Contains(r.err, "nothing was run") {
			t.Fatalf("it did not run: %v", r)
		}
	}
	if r := s.flightd("why", "exec/order"); !strings.Contains(r.out, "ann") || !strings.Contains(r.out, "another order of that number") {
		t.Errorf("why: %v", r)
	}
}

// TestImport_DryRunChangesNothing: also if a line is invalid.
func TestImport_DryRunChangesNothing(t *testing.T) {
	s := startServer(t)
	file := tempFile(t, `{"key":"default/charge/o-1","outcome":"succeeded"}`+"\nno JSON\n")
	r := s.flightd("import", file, "--dry-run")
	if r.code != exitUsage || !strings.Contains(r.err, "1 would be imported") || !strings.Contains(r.err, "nothing was changed") || strings.Contains(r.err, "what is in is in") {
		t.Errorf("dry run: %v", r)
	}
	if !strings.Contains(r.err, "line 2: invalid: the line is not a JSON object") {
		t.Errorf("the bad line: %v", r)
	}
	if r := s.flightd("flights", "ls", "--state", "none"); r.code != exitUsage || strings.Count(r.err, "input_invalid") != 1 || strings.Count(r.err, "unknown state") != 1 {
		t.Errorf("a mistake that the server finds: %v", r)
	}
}

// TestImport_DryRunReportsEveryInvalidLine: the first hundred in full, then their number. Real imports stop at the
// first one.
func TestImport_DryRunReportsEveryInvalidLine(t *testing.T) {
	world := httpapitest.New(t)
	server := httptest.NewServer(httpapi.New(world.Config()))
	t.Cleanup(server.Close)
	env := map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}
	const good = `{"key":"default/charge/%d","outcome":"succeeded"}` + "\n"
	var text strings.Builder
	for n := range 103 {
		fmt.Fprintf(&text, good, n)
		text.WriteString("{}\n")
	}
	file := tempFile(t, text.String()+strings.Repeat("x", maxLine+1)+"\n"+fmt.Sprintf(good, 200))
	r := cli(env, "import", file, "--dry-run")
	require.Equal(t, exitUsage, r.code, "%v", r)
	require.Contains(t, r.err, "line 2: ")
	require.Contains(t, r.err, "line 200: ")
	require.NotContains(t, r.err, "line 202: ")
	require.Contains(t, r.err, "4 more invalid lines are not shown\n")
	require.Contains(t, r.err, "104 lines are invalid\n")
	require.Contains(t, r.err, "208 lines, 104 would be imported")
	require.Contains(t, r.err, "nothing was changed")

	long := tempFile(t, strings.Repeat("x", maxLine+1)+"\n"+fmt.Sprintf(good, 1))
	r = cli(env, "import", long, "--dry-run")
	require.Equal(t, exitUsage, r.code, "%v", r)
	require.Contains(t, r.err, fmt.Sprintf("line 1: longer than %d bytes\n", maxLine))
	require.Contains(t, r.err, "1 line is invalid\n")
	r = cli(env, "import", long)
	require.Equal(t, exitUsage, r.code, "%v", r)
	require.Contains(t, r.err, "line 1: longer than")
	require.Contains(t, r.err, "0 imported", "an import stops at the first invalid line")
	r = cli(env, "import", long, "--keep-going")
	require.Equal(t, exitFailed, r.code, "%v", r)
	require.Contains(t, r.out, "1 imported")
}
