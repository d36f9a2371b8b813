package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/flightd/flightd/flight"
)

// askedName is a file in the data directory with the keys that callers have asked for since the ledger was restored, one
// per line. It helps an operator; no rule reads it, so it is not synced. The nodes of a cluster copy each other's keys, because
// only the node that leads is asked.
const askedName = "ASKED"

const (
	maxAsked = 1_000_000 // keys of the file
	maxTold  = 200       // keys in an answer to another node, which reads at most 1 MiB
)

// askedKeys are these keys. Its methods are safe for concurrent use.
type askedKeys struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex // guards the fields below
	keys  map[string]struct{}
	order []string // the same keys, in the order in which they were recorded
}

// openAsked reads the file; keep is false when no restore is under way, and removes it.
func openAsked(path string, keep bool, log *slog.Logger) (*askedKeys, error) {
	a := &askedKeys{path: path, log: log, keys: make(map[string]struct{})}
	if !keep {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return a, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if _, err := flight.ParseKey(lines.Text()); err == nil { // the last line may be torn
			a.keys[lines.Text()] = struct{}{}
			a.order = append(a.order, lines.Text())
		}
	}
	return a, lines.Err()
}

// add records a key.
func (a *askedKeys) add(key flight.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := key.String()
	if _, known := a.keys[text]; known || len(a.keys) >= maxAsked {
		return
	}
	a.keys[text] = struct{}{}
	a.order = append(a.order, text)
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		a.log.Debug("recording a key that was asked for failed", "error", err)
	}
}

// since returns up to maxTold of the keys after the first n that were recorded.
func (a *askedKeys) since(n int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.order[min(n, len(a.order)):min(n+maxTold, len(a.order))])
}

// copy records keys of another node, and returns how many; it may be called before the file is open.
func (a *askedKeys) copy(keys []string) int {
	if a == nil {
		return 0
	}
	for _, text := range keys {
		if key, err := flight.ParseKey(text); err == nil {
			a.add(key)
		}
	}
	return len(keys)
}

// page returns up to limit keys after a key, sorted, and how many there are in all.
func (a *askedKeys) page(after string, limit int) (keys []string, total int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys = []string{}
	if limit == 0 {
		return keys, len(a.keys)
	}
	for key := range a.keys {
		if key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys[:min(len(keys), limit)], len(a.keys)
}
