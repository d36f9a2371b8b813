//go:build clients

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// evidence is the test of a soak. Everything that the soak stores, sends, is answered and reports lies in dir until the soak has
// passed: its failure may never come back. The directory of a soak that failed, or that was killed, stays.
type evidence struct {
	*testing.T
	dir string

	mu    sync.Mutex // guards the fields below
	story *os.File   // what happened, in order, with times
	dirs  int
}

// newEvidence makes the directory of a soak: soak/SEED-TIME in bin/ of the repository, or in FLIGHTD_SOAK_OUTPUT.
func newEvidence(t *testing.T, seed uint64) *evidence {
	t.Helper()
	output := os.Getenv("FLIGHTD_SOAK_OUTPUT")
	if output == "" {
		output = filepath.Join("..", "..", "bin", "soak")
	}
	output, err := filepath.Abs(output)
	require.NoError(t, err)
	e := &evidence{T: t, dir: filepath.Join(output, fmt.Sprintf("%d-%s", seed, time.Now().Format("20060102-150405")))}
	require.NoError(t, os.MkdirAll(e.dir, 0o755))
	e.story, err = os.Create(filepath.Join(e.dir, "story"))
	require.NoError(t, err)
	t.Cleanup(func() { // runs last
		_ = e.story.Close()
		if !t.Failed() {
			require.NoError(t, os.RemoveAll(e.dir))
			return
		}
		etcds, _ := filepath.Glob(filepath.Join(e.dir, "*", "data", "node-*", "etcd")) // the pattern is valid
		for _, large := range etcds {
			_ = os.RemoveAll(large)
		}
		t.Logf("seed %d: messages, requests and answers are in %s/story, beside the logs and the ledgers of all nodes, and the spool", seed, e.dir)
	})
	e.note("%s seed %d", t.Name(), seed)
	for _, set := range os.Environ() {
		if strings.HasPrefix(set, "FLIGHTD_") {
			e.note("%s", set)
		}
	}
	return e
}

// note adds a line to the story.
func (e *evidence) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = fmt.Fprintf(e.story, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...)) // fails after the end of the test
}

// TempDir implements testing.TB.
func (e *evidence) TempDir() string {
	e.Helper()
	e.mu.Lock()
	e.dirs++
	dir := filepath.Join(e.dir, fmt.Sprintf("%03d", e.dirs))
	e.mu.Unlock()
	require.NoError(e, os.Mkdir(dir, 0o755))
	return dir
}

// Logf implements testing.TB.
func (e *evidence) Logf(format string, args ...any) {
	e.Helper()
	e.note(format, args...)
	e.T.Logf(format, args...)
}

// Errorf implements testing.TB.
func (e *evidence) Errorf(format string, args ...any) {
	e.Helper()
	e.note("FAILED: "+format, args...)
	e.T.Errorf(format, args...)
}

// Fatalf implements testing.TB.
func (e *evidence) Fatalf(format string, args ...any) {
	e.Helper()
	e.note("FAILED: "+format, args...)
	e.T.Fatalf(format, args...)
}

// Fatal implements testing.TB.
func (e *evidence) Fatal(args ...any) { e.Helper(); e.Fatalf("%s", fmt.Sprint(args...)) }
