package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

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

func newRestoreWorld(s *server, seed uint64) *restoreWorld {
	return &restoreWorld{server: s, rng: rand.New(rand.NewPCG(seed, 0)), effect: map[string]int{}, words: map[string]int{}, busy: map[string]bool{}}
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

// send posts a body, and returns the status and the decoded answer.
func (w *restoreWorld) send(path, body string) (int, map[string]any) {
	answer, err := http.Post(w.url()+path, "application/json", strings.NewReader(body))
	require.NoError(w.t, err)
	defer answer.Body.Close()
	said := make(map[string]any)
	require.NoError(w.t, json.NewDecoder(answer.Body).Decode(&said))
	return answer.StatusCode, said
}
