package executortest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Transcript has the events of a test in order.
type Transcript struct {
	mu    sync.Mutex
	lines []string
}

// Add adds a line unless it equals the last one: the number of retries during a wait is random.
func (t *Transcript) Add(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if n := len(t.lines); n == 0 || t.lines[n-1] != line {
		t.lines = append(t.lines, line)
	}
}

// String returns the lines.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n") + "\n"
}

// RequireGolden compares a transcript with its golden file, which it writes anew if update is set.
func RequireGolden(t *testing.T, name, got string, update bool) {
	t.Helper()
	path := filepath.Join("testdata", filepath.FromSlash(name)+".golden")
	if update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write it")
	require.Equal(t, string(want), got)
}

// Provider is the external system. It counts effects itself, and has a look-up.
type Provider struct {
	Say     func(string, ...any)
	Honours bool // acts once per idempotency key

	mu   sync.Mutex
	made []string // the idempotency key of each effect
}

// Act performs the effect and returns its id.
func (p *Provider) Act(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.made, key); i >= 0 && p.Honours {
		p.Say("provider: ch_%d again for the same key", i+1)
		return fmt.Sprintf("ch_%d", i+1)
	}
	p.made = append(p.made, key)
	id := fmt.Sprintf("ch_%d", len(p.made))
	p.Say("provider: %s created", id)
	return id
}

// Find is the look-up.
func (p *Provider) Find(key string) (id string, found bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.made, key)
	return fmt.Sprintf("ch_%d", i+1), i >= 0
}

// Effects returns the number of effects.
func (p *Provider) Effects() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.made)
}
