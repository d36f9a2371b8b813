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

// storageError says what was to be done with a database when err came, and gives it its class. ErrDamaged is only what
// proves that something on the disk is gone or changed: who reads of damage may throw a whole ledger away. What the system
// refuses now (a permission, a file descriptor, room, a sector) stays what it is, and the next start may get it.
func storageError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case anyOf(err, ErrDamaged, ErrNewer, ErrOlder, ErrForeign): // it has its class
	case errors.Is(err, pebblelog.ErrNewer), saysOf(err, "unknown format major version"):
		return fmt.Errorf("%w: %s: %w", ErrNewer, what, err)
	case damaging(err):
		return fmt.Errorf("%w: %s: %w", ErrDamaged, what, err)
	}
	return fmt.Errorf("clusterstore: %s: %w", what, err)
}

// damaging reports whether err proves that something is gone or changed. A file or a row that is not there is one that must be.
func damaging(err error) bool {
	return pebble.IsCorruptionError(err) || anyOf(err, pebblelog.ErrDamaged, fs.ErrNotExist, pebble.ErrNotFound, pebble.ErrDBNotPristine) ||
		saysOf(err, "object size mismatch")
}

// saysOf knows an error of Pebble's by its text, where it has nothing else.
func saysOf(err error, text string) bool { return strings.Contains(err.Error(), text) }

func anyOf(err error, causes ...error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// damages are the files of which it was told that they are damaged, and when.
type damages struct {
	mu   sync.Mutex
	told map[string]time.Time
}

// damagePause is how long a damaged file is not told of again.
const damagePause = time.Minute

// due reports whether it is time to tell of a file, and then takes it as told.
func (d *damages) due(file string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, told := d.told[file]; told && now.Sub(last) < damagePause {
		return false
	}
	if d.told == nil {
		d.told = make(map[string]time.Time)
	}
	d.told[file] = now
	return true
}
