package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// restoreWorld is a provider with its books, callers that open, act and report, and an operator who restores copies.
type restoreWorld struct {
	*server
	rng    *rand.Rand
	effect map[string]int  // effects of a key, by the provider's own books
	words  map[string]int  // how often the operator's word allowed another effect of a key without a receipt
	late   []withheld      // reports that have not been sent
	busy   map[string]bool // keys whose attempt's report is withheld
	nonce  int
	cycle  int
}

// withheld is a report that its caller sends later.
type withheld struct{ key, flight, body string }

// TestRestore_Cycles: effects, a copy or a backup, more effects, a kill or a stop, a restore to the same or another folder,
// rejected until it is accepted. No key's effect happens twice without the operator's recorded word; after accept and finish
// every late report is a receipt, a doubt or evidence, and every key can be brought to an end.
func TestRestore_Cycles(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := newRestoreWorld(startServer(t), seed)
	for w.cycle = range restoreCycles {
		w.runCycle(t)
	}
	twice := 0
	for key, n := range w.effect {
		require.LessOrEqual(t, n, 1+w.words[key], "effects of %s", key)
		if n > 1 {
			twice++
		}
	}
	t.Logf("%d cycles, %d keys, %d of them acted again by the operator's word", restoreCycles, len(w.effect), twice)
}

func newRestoreWorld(s *server, seed uint64) *restoreWorld {
	return &restoreWorld{server: s, rng: rand.New(rand.NewPCG(seed, 0)), effect: map[string]int{}, words: map[string]int{}, busy: map[string]bool{}}
}

func (w *restoreWorld) runCycle(t *testing.T) {
	w.act(t, 1+w.rng.IntN(6))
	copied, mode := t.TempDir(), []string{"copy", "backup", "ledger", "parts"}[w.rng.IntN(4)]
	w.copyAs(t, mode, filepath.Join(copied, "data"))
	w.act(t, 1+w.rng.IntN(6))
	w.end(t)
	original := w.data
	elsewhere := mode == "backup" || mode == "copy" && w.rng.IntN(2) == 0
	switch {
	case mode == "backup":
		w.data = filepath.Join(t.TempDir(), "data")
		r := w.flightd("restore", "--from", filepath.Join(copied, "data"), "--data", w.data)
		require.Zero(t, r.code, "%v", r)
	case mode == "ledger":
		w.putBack(filepath.Join(copied, "data"), "ledger")
	case mode == "parts": // another rest of the directory stays
		for _, name := range []string{"ledger", "etcd"} {
			require.NoError(t, os.RemoveAll(filepath.Join(w.data, name)))
			require.NoError(t, exec.Command("cp", "-a", filepath.Join(copied, "data", name), w.data).Run())
		}
	case elsewhere:
		w.data = filepath.Join(copied, "data")
	case w.rng.IntN(2) == 0: // files of the copy over those of the original
		require.NoError(t, exec.Command("cp", "-a", filepath.Join(copied, "data")+"/.", w.data).Run())
	default:
		require.NoError(t, os.RemoveAll(w.data))
		require.NoError(t, exec.Command("cp", "-a", filepath.Join(copied, "data"), w.data).Run())
	}
	for range 1 + w.rng.IntN(2) {
		w.requireRejected("restore accept")
	}
	if elsewhere && w.rng.IntN(3) == 0 { // the operator goes back to the original, which is whole
		w.data = original
		w.start()
		w.settle(t)
		return
	}
	r := w.flightd("restore", "accept", "--data", w.data, "--reason", fmt.Sprint("cycle ", w.cycle), "--yes")
	require.Zero(t, r.code, "%v", r)
	w.start()
	for key := range w.effect {
		if decision, _ := w.open(t, key); decision == "proceed" {
			t.Fatalf("%s opens in a restored ledger, cycle %d, %s", key, w.cycle, mode)
		}
	}
	w.sendLate(t, 0.5)
	if w.rng.IntN(4) == 0 {
		w.end(t)
		w.start()
	}
	for key := range w.effect { // a key without a receipt may act again from here on: the operator says so
		if state := w.state(key); state != "succeeded" {
			w.words[key]++
		}
	}
	w.post("/v1/restore:finish", fmt.Sprintf(`{"force":true,"reason":"cycle %d","actor":"ada"}`, w.cycle), nil)
	w.sendLate(t, 0.5)
	w.settle(t)
}

// act performs effects for new keys. Some reports are withheld.
func (w *restoreWorld) act(t *testing.T, n int) {
	for range n {
		key := fmt.Sprintf("default/pay/%d-%d", w.cycle, len(w.effect))
		w.tryKey(t, key)
	}
}

// tryKey opens a key, and acts if it may.
func (w *restoreWorld) tryKey(t *testing.T, key string) (decision string) {
	decision, answer := w.open(t, key)
	if decision != "proceed" {
		return decision
	}
	w.effect[key]++
	id, token := answer["flight_id"].(string), answer["fencing_token"].(string)
	outcome := "succeeded"
	if w.rng.IntN(8) == 0 {
		outcome = "unknown"
	}
	body := fmt.Sprintf(`{"fencing_token":%q,"key":%q,"outcome":%q,"external_id":"ch_%s_%d"}`, token, key, outcome, id[:6], w.effect[key])
	if w.rng.IntN(4) == 0 {
		w.late = append(w.late, withheld{key, id, body})
		w.busy[key] = true
		return decision
	}
	status, said := w.send("/v1/flights/"+id+"/report", body)
	require.Equal(t, http.StatusOK, status, "%v", said)
	return decision
}

// open returns the decision, or the code of the problem.
func (w *restoreWorld) open(t *testing.T, key string) (string, map[string]any) {
	w.nonce++
	id := strings.TrimPrefix(key, "default/pay/")
	_, said := w.send("/v1/flights:open", fmt.Sprintf(`{"action":"pay","id":%q,"input":{"id":%q},"nonce":"nonce-%010d-of-a-caller","wait_ms":0}`, id, id, w.nonce))
	if d, ok := said["decision"].(string); ok {
		return d, said
	}
	code, _ := said["code"].(string)
	require.NotEmpty(t, code, "%v", said)
	return code, said
}

func (w *restoreWorld) state(key string) string {
	answer, err := http.Get(w.url() + "/v1/flights?key=" + key)
	require.NoError(w.t, err)
	defer answer.Body.Close()
	var f struct {
		State string `json:"state"`
	}
	_ = json.NewDecoder(answer.Body).Decode(&f) // a problem has no state
	return f.State
}

// sendLate sends a share of the withheld reports. Each must be received: as a receipt, a doubt or evidence.
func (w *restoreWorld) sendLate(t *testing.T, share float64) {
	kept := w.late[:0]
	for _, l := range w.late {
		if w.rng.Float64() > share {
			kept = append(kept, l)
			continue
		}
		before := w.state(l.key)
		status, said := w.send("/v1/flights/"+l.flight+"/report", l.body)
		require.Contains(t, []int{http.StatusOK, http.StatusConflict}, status, "%v", said)
		after := w.state(l.key)
		if strings.Contains(l.body, `"succeeded"`) && before != "succeeded" && before != "running" {
			require.Equal(t, "succeeded", after, "the late success of %s, which was %q, in cycle %d: %v", l.key, before, w.cycle, said)
		}
		delete(w.busy, l.key)
	}
	w.late = kept
}

// settle sends all reports and brings every key to an end.
func (w *restoreWorld) settle(t *testing.T) {
	w.sendLate(t, 1)
	for key := range w.effect {
		for tries := 0; w.state(key) != "succeeded"; tries++ {
			require.Less(t, tries, 40, "%s is blocked: %s", key, w.state(key))
			switch decision := w.tryKey(t, key); decision {
			case "proceed", "replay":
				w.sendLate(t, 1)
			case "in_doubt":
				r := w.flightd("doubt", "resolve", key, "--happened", "--receipt", `{"settled":true}`, "--reason", "the books", "--yes")
				require.Zero(t, r.code, "%v", r)
			default:
				t.Fatalf("%s is answered %s in cycle %d", key, decision, w.cycle)
			}
		}
	}
}

// copyAs copies the data of the running server.
func (w *restoreWorld) copyAs(t *testing.T, mode, to string) {
	if mode == "backup" {
		r := w.flightd("backup", to)
		require.Zero(t, r.code, "%v", r)
		return
	}
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGSTOP))
	if mode == "ledger" {
		w.copyData(to, "ledger")
	} else {
		require.NoError(t, exec.Command("cp", "-a", w.data, to).Run())
	}
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGCONT))
}

// end stops or kills the server.
func (w *restoreWorld) end(t *testing.T) {
	if w.rng.IntN(2) == 0 {
		time.Sleep(time.Second) // the time after which the record of the last entry must be in etcd; a stop writes it itself
		w.kill()
		return
	}
	require.NoError(t, w.cmd.Process.Signal(os.Interrupt))
	require.NoError(t, w.cmd.Wait(), "%s", w.log)
	w.cmd = nil
}

// send posts a body, and returns the status and the decoded answer.
func (w *restoreWorld) send(path, body string) (int, map[string]any) {
	answer, err := http.Post(w.url()+path, "application/json", strings.NewReader(body))
	require.NoError(w.t, err)
	defer answer.Body.Close()
	said := make(map[string]any)
	require.NoError(w.t, json.NewDecoder(answer.Body).Decode(&said))
	return answer.StatusCode, said
}
