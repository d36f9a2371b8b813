package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// receipts writes a file of so many receipts, and gives its path.
func receipts(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"key":"default/exec/old-%d","outcome":"succeeded","external_id":"ch_%d","body":{"exit_code":0,"stdout":"paid %d\n"},`+
			`"content_type":"application/vnd.flightd.exec+json","finished_at":"2026-01-0%dT10:00:00Z","retention":"3650d"}`+"\n", i, i, i, 1+i%9)
	}
	return written(t, b.String())
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "receipts.ndjson")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func summaryOf(t *testing.T, r result) (sum importSummary) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.out), &sum); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	return sum
}

func TestImport_TheFirstDayDoesNotRedoLastMonth(t *testing.T) {
	s := startServer(t)
	const n = 25_000
	file := receipts(t, n)
	if sum := summaryOf(t, s.flightd("import", file, "--dry-run", "-o", "json")); sum.Imported != n || !sum.DryRun {
		t.Fatalf("dry run: %+v", sum)
	}
	if status := s.get("/v1/flights/fl_aaaaaaaaaaaaaaaaaaaaaaaaaa", nil); status != http.StatusNotFound {
		t.Fatalf("status %d", status)
	}
	first := summaryOf(t, s.flightd("import", file, "-o", "json"))
	if first.Imported != n || first.Existing != 0 || first.Lines != n || len(first.Differing) > 0 {
		t.Fatalf("first: %+v", first)
	}
	t.Logf("%.0f lines/s", n/first.Seconds)
	if again := summaryOf(t, s.flightd("import", file, "-o", "json")); again.Existing != n || again.Imported != 0 {
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
	if again := summaryOf(t, s.flightd("import", file, "-o", "json")); again.Existing != n {
		t.Fatalf("after a crash: %+v", again)
	}
}

func TestImport_SaysWhichLineIsWrongAndGoesOnFromThere(t *testing.T) {
	s := startServer(t)
	good := `{"key":"default/charge/a","outcome":"succeeded","external_id":"1"}` + "\n"
	file := written(t, good+"\n"+`{"key":"default/charge/b","outcome":"done"}`+"\n"+`{"key":"default/charge/c","outcome":"refused"}`+"\n")
	r := s.flightd("import", file, "-o", "json")
	if r.code != exitUsage || !strings.Contains(r.err, "line 3: ") || !strings.Contains(r.err, "outcome") || r.out != "" {
		t.Errorf("a bad line: %v", r)
	}
	r = s.flightd("import", file, "--keep-going", "-o", "json")
	if sum := summaryOf(t, r); r.code != exitFailed || sum.Imported != 1 || sum.Existing != 1 || sum.Unread != 1 || !strings.Contains(r.err, "line 3") {
		t.Errorf("passed over: %v", r)
	}
	other := written(t, good+strings.Replace(good, `"1"`, `"2"`, 1))
	r = s.flightd("import", other)
	if r.code != exitFailed || !strings.Contains(r.out, "line 2: default/charge/a: the flight has another receipt: succeeded 1") {
		t.Errorf("another receipt: %v", r)
	}
	if r = s.flightd("import", written(t, good)); !strings.HasPrefix(r.out, "1 line in ") || !strings.Contains(r.out, "1 was there already") {
		t.Errorf("one line: %v", r)
	}
	if r = s.flightd("import", written(t, good), "-n", "billing"); r.code != exitUsage || !strings.Contains(r.err, "namespace") {
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
	r := s.flightd("flights", "redact", "exec/secret", "--reason", "ticket 12", "--as", "ann", "--yes")
	if r.code != 0 || strings.Contains(r.out, "canary") || !strings.Contains(r.out, "by ann: ticket 12") {
		t.Fatalf("redact: %v", r)
	}
	if r = s.flightd("why", "exec/secret"); !strings.Contains(r.out, "ann had its input and receipt erased (ticket 12)") {
		t.Errorf("why: %v", r)
	}
	if r = s.flightd("exec", "--key", "secret", "--", "sh", "-c", "echo canary-7f"); strings.Contains(r.out, "canary") || r.code == 0 {
		t.Errorf("it ran again, or its output is still there: %v", r)
	}
	if !strings.Contains(r.err, "succeeded at ") || !strings.Contains(r.err, "nothing was run") || !strings.Contains(r.err, "are erased") {
		t.Errorf("it does not say what became of it: %v", r)
	}
	if status := s.get("/v1/flights/"+s.flight("default/exec/secret").ID+"/receipt", nil); status != http.StatusGone {
		t.Errorf("the receipt answers %d", status)
	}
}

// TestRedact_WhoAsksAgainIsTold: of a receipt that no command left, too. There is nothing to print, and that is said.
func TestRedact_WhoAsksAgainIsTold(t *testing.T) {
	s := startServer(t)
	file := written(t, `{"key":"default/charge/o-1","outcome":"succeeded","body":{"canary":1}}`)
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

// TestRedact_NoRetryWithoutAnInput: what is refused is not held out.
func TestRedact_NoRetryWithoutAnInput(t *testing.T) {
	s := startServer(t)
	run := []string{"exec", "--key", "gone", "--not-done-exit", "75", "--", "sh", "-c", "exit 75"}
	s.flightd(run...)
	if r := s.flightd("flights", "cancel", "gone", "--reason", "a test"); r.code != 0 {
		t.Fatal(r)
	}
	if r := s.flightd(run...); r.code != exitFailed || !strings.Contains(r.err, "flightd flights retry default/exec/gone --reason WHY lets it run again") {
		t.Errorf("cancelled: %v", r)
	}
	if r := s.flightd("flights", "redact", "gone", "--reason", "a test", "--yes"); r.code != 0 {
		t.Fatal(r)
	}
	if r := s.flightd(run...); r.code != exitFailed || strings.Contains(r.err, "lets it run again") || !strings.Contains(r.err, "an id of its own") {
		t.Errorf("its input erased: %v", r)
	}
}

// TestFree_TheKeyActsAgain: also where nothing but a tombstone guards it, as the hint to that answer says.
func TestFree_TheKeyActsAgain(t *testing.T) {
	s := startServer(t)
	buried := written(t, `{"key":"default/exec/order","outcome":"succeeded","retention":"1s"}`)
	if r := s.flightd("import", buried); r.code != 0 {
		t.Fatal(r)
	}
	run := []string{"exec", "--key", "order", "--fingerprint", "none", "--", "echo", "ran"}
	eventually(t, "its retention ends", 30*time.Second, func() bool { return s.flight("exec/order").State == "expired" })
	if r := s.flightd(run...); r.out != "" || !strings.Contains(r.err, "flights free") {
		t.Fatalf("behind its tombstone: %v", r)
	}
	for range 2 { // a tombstone, then a receipt
		if r := s.flightd("flights", "free", "exec/order", "--reason", "another order of that number", "--as", "ann", "--yes"); r.code != 0 {
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

// TestImport_ADryRunClaimsNothing: also where it stops at a line that cannot be read.
func TestImport_ADryRunClaimsNothing(t *testing.T) {
	s := startServer(t)
	file := written(t, `{"key":"default/charge/o-1","outcome":"succeeded"}`+"\nno JSON\n")
	r := s.flightd("import", file, "--dry-run")
	if r.code != exitUsage || !strings.Contains(r.err, "1 would be imported") || !strings.Contains(r.err, "nothing was changed") || strings.Contains(r.err, "what is in is in") {
		t.Errorf("dry run: %v", r)
	}
	if !strings.Contains(r.err, "line 2: invalid: the line is no JSON object") {
		t.Errorf("the bad line: %v", r)
	}
	if r := s.flightd("flights", "ls", "--state", "none"); r.code != exitUsage || strings.Count(r.err, "input_invalid") != 1 || strings.Count(r.err, "is no state") != 1 {
		t.Errorf("a mistake that the server finds: %v", r)
	}
}
