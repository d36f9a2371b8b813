package clusterstore

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// noSpaceFS is a file system that rejects new tables in a directory while full is set.
func noSpaceFS(fs vfs.FS, dir string, why error, full *atomic.Bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, dir+"/") && strings.HasSuffix(op.Path, ".sst") {
			return why
		}
		return nil
	}))
}

// A start flushes the write-ahead logs to tables. On a full disk it fails and loses no data.
func TestStartOnAFullDiskEnds(t *testing.T) {
	for _, dir := range []string{logDir, stateName(1)} {
		for _, why := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
			t.Run(dir+": "+why.Error(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs, known := vfs.NewCrashableMem(), new(knownFlights)
					s, err := Open(t.Context(), memConfig(fs))
					require.NoError(t, err)
					for n := range 20 {
						known.add(n, openAndReport(t, s, n))
					}
					s.fsm.flush()
					require.NoError(t, s.state.db.LogData(nil, pebble.Sync)) // so that the next start has a log to flush
					crashed := fs.CrashClone(vfs.CrashCloneCfg{})
					require.NoError(t, s.Close(context.Background()))

					full := new(atomic.Bool)
					full.Store(true)
					start := time.Now()
					_, err = Open(t.Context(), memConfig(noSpaceFS(crashed, dir, why, full)))
					require.ErrorIs(t, err, why)
					require.NotErrorIs(t, err, ErrDamaged)
					require.ErrorContains(t, err, "ledger/"+dir)
					require.Less(t, time.Since(start), time.Second)

					full.Store(false)
					time.Sleep(time.Second) // background work ends
					requireKnown(t, openStore(t, memConfig(crashed)), known)
				})
			})
		}
	}
}

// Close and Scrub flush tables, too. On a full disk both return; the next start or Scrub finishes the work.
func TestStopOnAFullDiskEnds(t *testing.T) {
	for _, dir := range []string{logDir, stateName(1)} {
		t.Run(dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, known, full := vfs.NewMem(), new(knownFlights), new(atomic.Bool)
				s, err := Open(t.Context(), memConfig(noSpaceFS(fs, dir, syscall.ENOSPC, full)))
				require.NoError(t, err)
				for n := range 20 {
					known.add(n, openAndReport(t, s, n))
				}
				key := openAndReportSecret(t, s, 31)
				propose(t, s, redactOf(key, 1))
				full.Store(true)
				start := time.Now()
				_, err = s.Scrub(t.Context())
				require.ErrorIs(t, err, syscall.ENOSPC)
				err = s.Close(context.Background())
				require.Less(t, time.Since(start), time.Second)
				if dir != logDir { // Close does not flush the log
					require.ErrorIs(t, err, syscall.ENOSPC)
				}
				next := openStore(t, memConfig(fs))
				_, err = next.Scrub(t.Context())
				require.NoError(t, err)
				requireKnown(t, next, known)
				requireErased(t, next, key, 1)
			})
		})
	}
}

// A restore writes a whole new state. On a full disk the start fails instead of waiting for memory.
func TestRestoreOnAFullDiskEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, known, full := vfs.NewMem(), new(knownFlights), new(atomic.Bool)
		s, err := Open(t.Context(), memConfig(fs))
		require.NoError(t, err)
		for n := range 20 {
			known.add(n, openAndReport(t, s, n))
		}
		for n := range 100 { // more than the memtables hold
			key := testKey(1000 + n)
			propose(t, s, reportOf(key, propose(t, s, openOf(s, key, 1000+n)).Token, strings.Repeat("x", flight.MaxReceiptBody)))
		}
		require.NoError(t, s.takeSnapshot())
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, fs.RemoveAll("ledger/"+stateName(1)))

		full.Store(true)
		start := time.Now()
		_, err = Open(t.Context(), memConfig(noSpaceFS(fs, stateName(2), syscall.ENOSPC, full)))
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NotErrorIs(t, err, ErrDamaged)
		require.Less(t, time.Since(start), time.Second)

		full.Store(false)
		requireKnown(t, openStore(t, memConfig(fs)), known)
	})
}

// A ledger that cannot flush its tables continues from memory. It retries with pauses, logs the error once a minute,
// and recovers when disk space is free again.
func TestTablesAreTriedAgainWithPauses(t *testing.T) {
	for _, dir := range []string{logDir, stateName(1)} {
		t.Run(dir, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				known, full, begun := new(knownFlights), new(atomic.Bool), new(atomic.Int32)
				fs := errorfs.Wrap(noSpaceFS(vfs.NewMem(), dir, syscall.ENOSPC, full), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, dir+"/") && strings.HasSuffix(op.Path, ".sst") {
						begun.Add(1)
					}
					return nil
				}))
				log := new(bytes.Buffer)
				cfg := memConfig(fs)
				cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				s := openStore(t, cfg)
				for n := range 20 {
					known.add(n, openAndReport(t, s, n))
				}
				s.fsm.flush()
				full.Store(true)
				flush := s.state.db.Flush
				if dir == logDir {
					flush = s.log.Scrub
				}
				require.ErrorIs(t, flush(t.Context()), syscall.ENOSPC)
				before := begun.Load()
				time.Sleep(10 * time.Second)
				require.LessOrEqual(t, begun.Load()-before, int32(100), "tries in ten seconds")
				require.Greater(t, begun.Load(), before)
				require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
				require.Contains(t, log.String(), "ledger/"+dir)
				known.add(20, openAndReport(t, s, 20))
				requireKnown(t, s, known)

				full.Store(false)
				time.Sleep(time.Second)
				require.NoError(t, flush(t.Context()))
				requireKnown(t, s, known)
			})
		})
	}
}

// The watchdog's error wraps the system's error when a write waits for a flush on a full disk.
func TestStallOnAFullDiskSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := new(atomic.Bool)
		cfg := memConfig(noSpaceFS(vfs.NewMem(), logDir, syscall.ENOSPC, full))
		died := make(chan error, 1)
		cfg.Limits.Kill = func(why error) { died <- why }
		s := openStore(t, cfg)
		openAndReport(t, s, 1)
		s.onStall("append", cfg.Limits.StallTimeout)
		require.NotErrorIs(t, <-died, syscall.ENOSPC)
		full.Store(true)
		require.Error(t, s.log.Scrub(t.Context()))
		s.onStall("append", cfg.Limits.StallTimeout)
		require.ErrorIs(t, <-died, syscall.ENOSPC)
		full.Store(false)
	})
}
