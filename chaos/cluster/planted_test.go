//go:build chaos

package cluster

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plantedBug is a bug in flightd: in file, broken replaces each old. CheckJobs must find that it breaks the rule.
type plantedBug struct {
	name, file string
	edits      [][2]string // old, broken
	rule       string
}

var plantedBugs = []plantedBug{
	{"a job is handed out twice when its worker dies", "flight/apply_open.go", [][2]string{
		{"\tt.taint()\n\tt.applyRecovery(0)", "\tt.reschedule(0)"},
	}, ruleOneEffect},
	{"a lane is ordered by the arrival of claims", "flight/due.go", [][2]string{
		{"\t\tj.held = true\n\t\tj.lane.jobs.Rep", "\t\tj.lane.jobs.Rep"},
		{"if !j.held && !j.first && d.jobs[j.id] == j {", "if j == nil {"},
		{"return j != nil && j.held", `if j == nil || j.lane == nil {
		return false
	}
	running := 0
	j.lane.jobs.Ascend(func(other *job) bool {
		if other.state == StateRunning {
			running++
		}
		return true
	})
	return running >= int(max(1, j.place.Queue.Limit))`},
	}, ruleLane},
}

// TestPlantedBugs shows that the provider's books tell a bug in flightd: a binary with one bug serves jobs whose workers are killed.
func TestPlantedBugs(t *testing.T) {
	sound := flightd
	t.Cleanup(func() { flightd = sound })
	for _, bug := range plantedBugs {
		t.Run(strings.ReplaceAll(bug.name, " ", "_"), func(t *testing.T) {
			flightd = bug.build(t)
			b := newBed(t)
			running := b.startWorkers(6)
			const count = 400
			b.tell(order{Do: "jobs", Name: "jobs", Count: count, Every: 15 * time.Second * submitters / count})
			for range 3 {
				time.Sleep(4 * time.Second) // of work between two kills
				for i, p := range running {
					p.Kill()
					running[i] = b.startWorker(i)
				}
			}
			b.await("jobs", 2*time.Minute)
			found := CheckJobs(jobsOf(count), b.Effects, b.JobEnds)
			first := slices.IndexFunc(found, func(v Violation) bool { return v.Rule == bug.rule })
			require.GreaterOrEqual(t, first, 0, "CheckJobs found %v", found)
			t.Logf("%d promises are broken; the first one of its rule: %v", len(found), found[first])
		})
	}
}

// build builds flightd with the bug, with an overlay, and returns the path of the binary.
func (bug *plantedBug) build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join("../..", bug.file))
	require.NoError(t, err)
	code, err := os.ReadFile(source)
	require.NoError(t, err)
	for _, edit := range bug.edits {
		require.Equal(t, 1, bytes.Count(code, []byte(edit[0])), "how often %q is in %s", edit[0], bug.file)
		code = bytes.Replace(code, []byte(edit[0]), []byte(edit[1]), 1)
	}
	broken, overlay, binary := filepath.Join(dir, "broken.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "flightd")
	table, err := json.Marshal(map[string]map[string]string{"Replace": {source: broken}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(broken, code, 0o600))
	require.NoError(t, os.WriteFile(overlay, table, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-overlay", overlay, "-o", binary, "./cmd/flightd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}
