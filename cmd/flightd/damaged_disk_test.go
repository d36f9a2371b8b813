package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recordedWithin is how long an acknowledged receipt may be missing from etcd's record of the ledger.
const recordedWithin = 250 * time.Millisecond

// TestDev_DamagedLedgerIsWholeOrRejected: after a kill, one bit of the ledger is flipped, or one file is cut. The next start
// finds every receipt, or is rejected with a sentence that says what to do. Only a receipt that was acknowledged within the
// last 250 ms may be missing after a start, and the start logs that the ledger was not closed.
func TestDev_DamagedLedgerIsWholeOrRejected(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	counts := make(map[string]int)
	var s *server
	var acknowledged map[string]time.Time
	var killed time.Time
	base := t.TempDir()
	for i := range damages {
		if i%50 == 0 { // another ledger, killed at another moment
			s = startServer(t)
			acknowledged = s.payMany(rng, 20+rng.IntN(200))
			s.kill()
			killed = time.Now()
			s.copyData(base, "ledger", "etcd")
			require.NotEmpty(t, acknowledged)
		} else {
			s.putBack(base, "ledger", "etcd")
		}
		what := damage(t, rng, filepath.Join(s.data, "ledger"))
		outcome, kill := s.startDamaged(t, what)
		if outcome == "accepted" {
			missing := s.missing(acknowledged)
			for _, id := range missing {
				require.Less(t, killed.Sub(acknowledged[id]), recordedWithin+100*time.Millisecond, "%s: the receipt of %s is missing\n%s", what, id, s.log)
			}
			kill()
			if outcome = "whole"; len(missing) > 0 {
				outcome = "without the last receipts"
				require.Contains(t, s.log.String(), "the ledger was not closed", what)
			}
		}
		counts[outcome]++
	}
	t.Logf("%d damages: %v", damages, counts)
}

// payMany opens and reports n flights, and returns when each receipt was acknowledged.
func (s *server) payMany(rng *rand.Rand, n int) map[string]time.Time {
	s.t.Helper()
	acknowledged := make(map[string]time.Time, n)
	for i := range n {
		var opened struct {
			Flight string `json:"flight_id"`
			Token  string `json:"fencing_token"`
		}
		s.post("/v1/flights:open", fmt.Sprintf(`{"action":"pay","id":"%d","input":{"n":%d},"nonce":"nonce-of-payment-%d"}`, i, i, i), &opened)
		body := strings.Repeat("x", rng.IntN(6000))
		s.post("/v1/flights/"+opened.Flight+"/report", fmt.Sprintf(`{"fencing_token":%q,"outcome":"succeeded","body":%q}`, opened.Token, body), nil)
		acknowledged[opened.Flight] = time.Now()
	}
	return acknowledged
}

func (s *server) post(path, body string, into any) {
	s.t.Helper()
	answer, err := http.Post(s.url()+path, "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer answer.Body.Close()
	require.Less(s.t, answer.StatusCode, 300, "%s: %s", path, answer.Status)
	if into != nil {
		require.NoError(s.t, json.NewDecoder(answer.Body).Decode(into))
	}
}

// damage flips a bit in a file below dir, or cuts it: a file of the log, of the tables or of a snapshot, or the identity.
func damage(t *testing.T, rng *rand.Rand, dir string) string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "INODE" { // putBack keeps it; a damaged one is rejected like a copy
			if info, err := d.Info(); err == nil && info.Size() > 0 {
				files = append(files, path)
			}
		}
		return err
	})
	require.NoError(t, err)
	path := files[rng.IntN(len(files))]
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	used := max(1, len(strings.TrimRight(string(content), "\x00")))
	at, what := rng.IntN(used), "bit"
	if rng.IntN(4) == 0 { // near the end, where damage looks like a torn write
		at = max(0, used-1-rng.IntN(200))
	}
	if rng.IntN(3) == 0 {
		what, content = "cut", content[:at]
	} else {
		content[at] ^= 1 << rng.IntN(8)
	}
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return fmt.Sprintf("%s at %d of %d in %s", what, at, used, strings.TrimPrefix(path, dir))
}

// startDamaged starts the server and says whether it was accepted; kill ends it then. A rejection must say what to do.
func (s *server) startDamaged(t *testing.T, what string) (outcome string, kill func()) {
	t.Helper()
	i := s.begin("dev", "--data", s.data, "--listen", s.address)
	ended := make(chan result, 1)
	go func() { ended <- i.wait() }() // received below
	for {
		answer, err := http.Get(s.url() + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				s.log = &i.err
				return "accepted", func() {
					_ = i.cmd.Process.Kill()
					<-ended
				}
			}
		}
		select {
		case r := <-ended:
			require.NotZero(t, r.code, "%s: %v", what, r)
			require.Regexp(t, `(?m)^  .*(restore|start it again|start the version|check the disk)`, r.err, "%s: %v", what, r)
			return fmt.Sprint("rejected with ", r.code), nil
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// missing returns the flights whose receipt the server does not have. An answer that it cannot read counts as present: it
// was not forgotten.
func (s *server) missing(acknowledged map[string]time.Time) (ids []string) {
	s.t.Helper()
	for id := range acknowledged {
		answer, err := http.Get(s.url() + "/v1/flights/" + id)
		if err != nil {
			break // it ended at a damaged block
		}
		var f struct {
			State string `json:"state"`
		}
		err = json.NewDecoder(answer.Body).Decode(&f)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusOK && err == nil && f.State != "succeeded" {
			ids = append(ids, id)
		}
	}
	return ids
}
