package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// singleFault is a disk that fails one write, sync, creation or removal, and a process that is killed where it must
// not continue. Its disk is then as a power cut leaves it.
type singleFault struct {
	disk *vfs.MemFS
	rng  *rand.Rand
	why  error

	mu   sync.Mutex
	left int // writes before the failing one
	on   bool
	hit  string
	dead *vfs.MemFS
}

func (f *singleFault) inject(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	if f.left--; f.left != 0 {
		return nil
	}
	f.hit = op.Path
	if endsTheProcess(op) { // no caller is answered after it
		f.dieLocked()
		return nil
	}
	return f.why
}

// endsTheProcess reports whether Pebble cannot continue after a failure of op, so that it panics or calls Fatalf:
// writes of a write-ahead log or manifest, and syncs of the directories of databases and checkpoints.
func endsTheProcess(op errorfs.Op) bool {
	return strings.HasSuffix(op.Path, ".log") || strings.Contains(op.Path, "MANIFEST") ||
		slices.Contains([]string{"ledger/" + logDir, "ledger/" + stateName(1)}, op.Path) || strings.Contains(op.Path, "/"+tempPrefix) && op.Kind == errorfs.OpFileSync
}

func (f *singleFault) kill(error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dieLocked()
}

func (f *singleFault) dieLocked() {
	if f.dead == nil {
		f.dead = f.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: f.rng.IntN(2) * 50, RNG: f.rng})
	}
}

// lives reports whether replies of the process still count.
func (f *singleFault) lives() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead == nil
}

// answered holds the replies of a process before it was killed.
type answered struct {
	flew     knownFlights
	promised []int        // reports answered with effect.ErrPending
	opened   []int        // reported or not
	erased   []flight.Key // redactions that were accepted
}

// live runs flights, snapshots, redactions and scrubs until the process is killed or the work is done.
func (f *singleFault) live(t *testing.T) *answered {
	known := new(answered)
	cfg := memConfig(errorfs.Wrap(f.disk, errorfs.InjectorFunc(f.inject)))
	cfg.Limits.Kill = f.kill
	s, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { _ = s.Close(context.Background()) }() // replies after the kill do not count
	f.mu.Lock()
	f.on = true
	f.mu.Unlock()
	for n := 0; n < 24 && f.lives(); n++ {
		f.runFlight(t, s, n, known)
		switch n % 8 {
		case 3:
			_ = s.takeSnapshot()
		case 5:
			delete(known.flew.receipts, n-1) // it may be erased although the reply is missing
			if reply, err := s.Propose(t.Context(), redactOf(testKey(n-1), 1)); err == nil && reply.Decision == flight.DecisionAccepted && f.lives() {
				known.erased = append(known.erased, testKey(n-1))
			}
			_, _ = s.Scrub(t.Context())
		case 7:
			s.fsm.flush()
			_ = s.state.db.Flush(t.Context())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dieLocked()
	return known
}

// runFlight opens flight n, and reports it unless n%3 is 2.
func (f *singleFault) runFlight(t *testing.T, s *Store, n int, known *answered) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	opened, err := s.Propose(ctx, openOf(s, testKey(n), n))
	if err != nil || !f.lives() {
		return
	}
	known.opened = append(known.opened, n)
	if n%3 == 2 {
		return
	}
	reply, err := s.Report(ctx, reportOf(testKey(n), opened.Token, fmt.Sprintf(`{"id":%d}`, n)))
	switch {
	case !f.lives():
	case err == nil:
		known.flew.add(n, reply)
	case errors.Is(err, effect.ErrPending):
		known.promised = append(known.promised, n)
	}
}

// A disk fails one write, sync, creation or removal, and accepts the next one. No acknowledged data is lost, no
// unreported flight counts as finished, and the next start succeeds.
func TestSingleWriteFailure(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for at := 1; ; at += 1 + rng.IntN(9) {
		hit := ""
		synctest.Test(t, func(t *testing.T) {
			o := &singleFault{disk: vfs.NewCrashableMem(), rng: rng, left: at, why: []error{syscall.ENOSPC, syscall.EIO}[rng.IntN(2)]}
			known := o.live(t)
			if hit = o.hit; hit == "" {
				return
			}
			s, err := Open(t.Context(), memConfig(o.dead))
			require.NoError(t, err, "write %d, %s: %v", at, o.hit, o.why)
			time.Sleep(time.Second) // spooled reports are committed
			requireKnown(t, s, &known.flew)
			for _, n := range known.opened {
				if f := mustFlight(t, s, n); n%3 == 2 {
					require.NotNil(t, f.OpenAttempt(), "write %d, %s: flight %d was not reported", at, hit, n)
				}
			}
			for _, n := range known.promised {
				require.Equal(t, flight.StateSucceeded, mustFlight(t, s, n).State)
			}
			for _, key := range known.erased {
				requireErased(t, s, key, 1)
			}
			requireConsistent(t, s)
			require.NoError(t, s.Close(context.Background()))
		})
		if hit == "" {
			t.Logf("%d writes", at)
			return
		}
	}
}
