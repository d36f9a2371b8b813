package clusterstore

import (
	"bytes"
	"context"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

const canary = "canary-5d1c9f0e7b"

// secretOf returns a body that is inline for even n, and has its own row for odd n.
func secretOf(n int) string { return canary + strings.Repeat(".", n%2*maxInlineBody) }

// openAndReportSecret runs a flight whose input and receipt hold the canary.
func openAndReportSecret(t *testing.T, s *Store, n int) flight.Key {
	t.Helper()
	key := testKey(n)
	open := openOf(s, key, n)
	open.Submission.Input = flight.NewBlob("text/plain", []byte("input "+secretOf(n)), flight.MaxInput)
	opened := propose(t, s, open)
	report := reportOf(key, opened.Token, secretOf(n))
	report.ExternalID = "ext-1"
	propose(t, s, report)
	return key
}

func redactOf(key flight.Key, generation uint32) *flight.Redact {
	return &flight.Redact{Key: key, Generation: generation, Actor: "ann", Reason: "asked for"}
}

// requireErased checks that no read returns the bytes, before and after the flush.
func requireErased(t *testing.T, s *Store, key flight.Key, generation uint32) {
	t.Helper()
	for range 2 {
		for _, part := range [...]BodyKind{BodyInput, BodyReceipt} {
			_, err := s.Body(key.FlightID(), generation, part)
			require.ErrorIs(t, err, ErrNoBody)
		}
		s.fsm.flush()
	}
}

func TestRedact_NobodyReadsTheBytes(t *testing.T) {
	for name, flushed := range map[string]bool{"in one turn": false, "in the state": true} {
		s := openStore(t, memConfig(vfs.NewMem()))
		for n := range 2 {
			key := openAndReportSecret(t, s, n)
			if flushed {
				s.fsm.flush()
			}
			reply := propose(t, s, redactOf(key, 1))
			require.Equal(t, flight.DecisionAccepted, reply.Decision, name)
			requireErased(t, s, key, 1)
			requireConsistent(t, s)
			f, err := s.Flight(key.FlightID())
			require.NoError(t, err)
			require.Equal(t, flight.StateSucceeded, f.State)
			require.NotZero(t, f.Receipt.Body.Digest)
		}
		require.Zero(t, countRows(t, s, bodyRow), name)
	}
}

func TestRedact_ReachesEarlierReceipts(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	for n := range 2 {
		key := openAndReportSecret(t, s, n)
		propose(t, s, &flight.FreeKey{Key: key, Generation: 1})
		body, err := s.Body(key.FlightID(), 1, BodyReceipt)
		require.NoError(t, err, "a freed key still has its earlier receipts")
		require.Equal(t, secretOf(n), string(body))
		require.Equal(t, flight.DecisionAccepted, propose(t, s, redactOf(key, 2)).Decision)
		requireErased(t, s, key, 1)
	}
	require.Zero(t, countRows(t, s, bodyRow))
}

// countRows counts the flight rows of a kind.
func countRows(t *testing.T, s *Store, kind byte) (n int) {
	t.Helper()
	for key := range dump(t, s) {
		if key[0] == flightRows && key[kindOffset] == kind {
			n++
		}
	}
	return n
}

// filesWith returns the files of a directory that hold the canary.
func filesWith(t *testing.T, dir string) (found []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(canary)) {
			found = append(found, path)
		}
		return err
	}))
	return found
}

// The test searches every file of a ledger on a real disk: state, log, snapshots, spool.
func TestScrub_TheBytesLeaveTheDisk(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	reopen := func() *Store {
		s, err := Open(ctx, Config{Dir: dir, Memory: Memory{BlockCache: 4 << 20, MemTable: 1 << 20, Flights: 4096}})
		require.NoError(t, err)
		return s
	}
	s := reopen()
	var secrets []flight.Key
	for n := range 300 {
		if n%100 == 50 || n%100 == 51 {
			secrets = append(secrets, openAndReportSecret(t, s, n))
		} else {
			openAndReport(t, s, n)
		}
		if n == 200 {
			require.NoError(t, s.takeSnapshot())
			require.NoError(t, s.state.db.Flush(context.Background()))
		}
	}
	s.fsm.flush()
	require.NoError(t, s.state.db.Compact(ctx, []byte{0}, []byte{255}, false)) // to the level that no compaction rewrites
	for _, key := range secrets {
		propose(t, s, redactOf(key, 1))
	}
	require.NoError(t, s.Close(ctx))
	s = reopen()
	require.NotEmpty(t, filesWith(t, dir), "before a scrub, older files hold the bytes")

	n, err := s.Scrub(ctx)
	require.NoError(t, err)
	require.Equal(t, len(secrets), n)
	n, err = s.Scrub(ctx)
	require.NoError(t, err)
	require.Zero(t, n, "nothing is left to scrub")
	require.NoError(t, s.Close(ctx))
	s = reopen() // drops the write-ahead logs of the previous process
	require.Empty(t, filesWith(t, dir))
	for n := range 300 {
		f, err := s.Flight(testKey(n).FlightID())
		require.NoError(t, err)
		require.Equal(t, flight.StateSucceeded, f.State, "flight %d", n)
	}
	openAndReport(t, s, 1000)
	require.NoError(t, s.Close(ctx))
}

func TestScrub_GoesOnAfterEveryStart(t *testing.T) {
	mem, ctx := vfs.NewMem(), context.Background()
	for life := range 3 {
		s, err := Open(ctx, memConfig(mem))
		require.NoError(t, err)
		key := openAndReportSecret(t, s, life)
		redacted := propose(t, s, redactOf(key, 1)).Flight.Version.Index
		n, err := s.Scrub(ctx)
		require.NoError(t, err, "life %d", life)
		require.Equal(t, 1, n)
		first, err := s.log.FirstIndex()
		require.NoError(t, err)
		require.Greater(t, first, redacted, "the log starts after the redact")
		require.NoError(t, s.Close(ctx))
	}
}

// A reused write-ahead log would hold old bytes after its end. The checkpoint of the state would copy them, and no
// start replaces a checkpoint.
func TestScrub_TheSnapshotHoldsNothingOfOldLogs(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	cfg := Config{Dir: dir, Memory: Memory{BlockCache: 4 << 20, MemTable: 1 << 20, Flights: 4096}}
	s, err := Open(ctx, cfg)
	require.NoError(t, err)
	for n := range 2 {
		key := openAndReportSecret(t, s, n)
		s.fsm.flush()
		require.NoError(t, s.state.db.Flush(context.Background()))
		propose(t, s, redactOf(key, 1))
	}
	n, err := s.Scrub(ctx)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, s.Close(ctx))
	s, err = Open(ctx, cfg) // drops the write-ahead logs of the previous process
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
	require.Empty(t, filesWith(t, dir))
}

// After a crash before any write of a Scrub, or after the last one, no other data is lost, and once the Scrub is
// recorded as done the bytes do not come back.
func TestScrub_CrashAtEveryWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flights, secrets = 8, 2
		ctx, mem := context.Background(), vfs.NewCrashableMem()
		var mu sync.Mutex
		var crashes []*vfs.MemFS
		armed := false
		crash := func() {
			crashes = append(crashes, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 2))}))
		}
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if armed && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
				crash()
			}
			return nil
		}))
		s, err := Open(ctx, memConfig(fs))
		require.NoError(t, err)
		for n := range flights - secrets {
			openAndReport(t, s, n)
		}
		for n := flights - secrets; n < flights; n++ {
			openAndReportSecret(t, s, n)
		}
		require.NoError(t, s.takeSnapshot())
		require.NoError(t, s.state.db.Flush(context.Background()))
		for n := flights - secrets; n < flights; n++ {
			propose(t, s, redactOf(testKey(n), 1))
		}
		mu.Lock()
		armed = true
		mu.Unlock()
		n, err := s.Scrub(ctx)
		require.NoError(t, err)
		require.Equal(t, secrets, n)
		mu.Lock()
		armed = false
		crash()
		mu.Unlock()
		require.NoError(t, s.Close(ctx))

		for i, crashed := range crashes {
			s, err := Open(ctx, memConfig(crashed))
			require.NoError(t, err, "crash %d of %d", i, len(crashes))
			for n := range flights {
				require.Equal(t, flight.StateSucceeded, mustFlight(t, s, n).State)
			}
			requireConsistent(t, s)
			_, err = s.Scrub(ctx) // does nothing where it was done
			require.NoError(t, err)
			require.NoError(t, s.Close(ctx))
			s, err = Open(ctx, memConfig(crashed)) // drops the write-ahead logs of the previous process
			require.NoError(t, err)
			require.NoError(t, s.Close(ctx))
			require.Empty(t, memFilesWith(t, crashed, "ledger"), "crash %d of %d", i, len(crashes))
		}
	})
}

// memFilesWith is filesWith for an in-memory file system.
func memFilesWith(t *testing.T, fs vfs.FS, dir string) (found []string) {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		require.NoError(t, err)
		if info.IsDir() {
			found = append(found, memFilesWith(t, fs, path)...)
			continue
		}
		content, err := readFile(fs, path)
		require.NoError(t, err)
		if bytes.Contains(content, []byte(canary)) {
			found = append(found, path)
		}
	}
	return found
}

// A report that is repeated after a redaction puts the bytes into the log again. The next Scrub erases them.
func TestScrub_RepeatedBytesAreErasedToo(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	s, err := Open(ctx, Config{Dir: dir, Memory: Memory{BlockCache: 4 << 20, MemTable: 1 << 20, Flights: 4096}})
	require.NoError(t, err)
	key := openAndReportSecret(t, s, 1)
	opened := mustFlight(t, s, 1)
	propose(t, s, redactOf(key, 1))
	_, err = s.Scrub(ctx)
	require.NoError(t, err)
	report := reportOf(key, opened.Newest().Token(), secretOf(1))
	report.ExternalID = "ext-1"
	for _, again := range []flight.Command{
		report,
		&flight.Import{Key: key, Outcome: flight.OutcomeSucceeded, ExternalID: "ext-1", Body: report.Body, Actor: "ann"},
	} {
		propose(t, s, again)
		n, err := s.Scrub(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n, "%T", again)
	}
	requireErased(t, s, key, 1)
	require.NoError(t, s.Close(ctx))
	s, err = Open(ctx, Config{Dir: dir}) // drops the write-ahead logs of the previous process
	require.NoError(t, err)
	require.NoError(t, s.Close(ctx))
	require.Empty(t, filesWith(t, dir))
}
