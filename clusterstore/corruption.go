package clusterstore

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

// storageError wraps an error of a database with the operation, and classifies it. ErrDamaged is returned only when
// err proves that data is gone or changed: an operator who reads "damaged" may discard the ledger. An error of the
// operating system (permission, file descriptors, disk space, bad sector) keeps its own class, because the next start
// may succeed.
func storageError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case isAny(err, ErrDamaged, ErrNewer, ErrForeign): // already classified
	case errors.Is(err, pebblelog.ErrNewer), errorContains(err, "unknown format major version"):
		return fmt.Errorf("%w: %s: %w", ErrNewer, what, err)
	case isCorruption(err):
		return fmt.Errorf("%w: %s: %w", ErrDamaged, what, err)
	}
	return fmt.Errorf("clusterstore: %s: %w", what, err)
}

// isCorruption reports whether err proves that data is gone or changed. A missing file or row counts: storageError is
// called only for those that must exist.
func isCorruption(err error) bool {
	return pebble.IsCorruptionError(err) || isAny(err, pebblelog.ErrCorrupt, fs.ErrNotExist, pebble.ErrNotFound, pebble.ErrDBNotPristine) ||
		errorContains(err, "object size mismatch") || errorContains(err, "name from file")
}

// errorContains recognizes an error of Pebble by its text, where Pebble has no value to compare.
func errorContains(err error, text string) bool { return strings.Contains(err.Error(), text) }

func isAny(err error, causes ...error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// corruptionLog throttles the log messages about damaged files.
type corruptionLog struct {
	mu         sync.Mutex // guards lastLogged
	lastLogged map[string]time.Time
}

// corruptionLogInterval is the time between two log messages about one file.
const corruptionLogInterval = time.Minute

// shouldLog reports whether the last message about a file is at least corruptionLogInterval old, and if so records a
// new one.
func (l *corruptionLog) shouldLog(file string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, logged := l.lastLogged[file]; logged && now.Sub(last) < corruptionLogInterval {
		return false
	}
	if l.lastLogged == nil {
		l.lastLogged = make(map[string]time.Time)
	}
	l.lastLogged[file] = now
	return true
}
