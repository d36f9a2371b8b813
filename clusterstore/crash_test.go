package clusterstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// knownFlights holds the receipts that a caller was told are recorded.
type knownFlights struct {
	mu       sync.Mutex
	receipts map[int]flight.Receipt
}

func (f *knownFlights) add(n int, r flight.Reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.receipts == nil {
		f.receipts = make(map[int]flight.Receipt)
	}
	f.receipts[n] = *r.Flight.Receipt
}

// requireKnown checks that every acknowledged receipt exists unchanged, bytes included.
func requireKnown(t *testing.T, s *Store, known *knownFlights) {
	t.Helper()
	for n, want := range known.receipts {
		f, err := s.Flight(testKey(n).FlightID())
		require.NoError(t, err)
		require.NotNil(t, f, "flight %d is lost", n)
		require.Equal(t, want, *f.Receipt)
		body, err := s.Body(f.ID, f.Generation, BodyReceipt)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`{"id":%d}`, n), string(body))
	}
}

// dump returns all rows of a ledger's state.
func dump(t *testing.T, s *Store) map[string]string {
	t.Helper()
	s.fsm.flush()
	rows := make(map[string]string)
	require.NoError(t, s.state.scan([]byte{0}, []byte{255}, func(key, value []byte) (bool, error) {
		rows[string(key)] = string(value)
		return true, nil
	}))
	return rows
}

// requireConsistent checks that indexes, counts, key filter and flights of a state agree.
func requireConsistent(t *testing.T, s *Store) {
	t.Helper()
	rows := dump(t, s)
	want := make(map[string]bool)
	var counts [flight.StateExpired + 1]int64
	var flights, enrolled []flight.ID
	for key, value := range rows {
		if key[0] != flightRows || key[kindOffset] != recordRow {
			continue
		}
		r, err := decodeRecord([]byte(value))
		require.NoError(t, err)
		f := r.flight
		counts[f.State]++
		flights = append(flights, f.ID)
		require.True(t, s.fsm.filter.Load().mayContain(f.ID), "the key filter contains every flight")
		for _, place := range [][]byte{liveKey(nil, f), listKey(nil, f), expiryKey(nil, f)} {
			if place != nil {
				want[string(place)] = true
			}
		}
	}
	got := make(map[string]bool)
	for key, value := range rows {
		switch key[0] {
		case liveRow, listRow, expiryRow:
			got[key] = true
		case filterRow:
			for id := range slices.Chunk([]byte(value), len(flight.ID{})) {
				enrolled = append(enrolled, flight.ID(id))
			}
		}
	}
	named := make(map[flight.ID]bool)
	for _, id := range enrolled {
		named[id] = true
	}
	for _, id := range flights {
		require.True(t, named[id], "the filter rows list every flight")
	}
	listed := make(map[string]int64)
	for key, value := range rows {
		if key[0] == listRow {
			listed[flight.MustKey(value).Namespace()]++
		}
	}
	maps.DeleteFunc(s.fsm.listed, func(_ string, n int64) bool { return n == 0 })
	require.Equal(t, listed, s.fsm.listed, "flights by namespace")
	stored, err := s.state.loadDocuments()
	require.NoError(t, err)
	require.Equal(t, stored.List(""), s.fsm.documents.List(""), "documents")
	require.Len(t, enrolled, len(flights)+int(s.fsm.meta.Deleted), "once each, plus the deleted flights")
	require.Equal(t, want, got)
	require.Equal(t, counts, s.fsm.meta.Counts)
	requireSessions(t, s)
}

// requireSessions checks that the fsm holds the sessions and the due flights that a start would load from the rows.
func requireSessions(t *testing.T, s *Store) {
	t.Helper()
	s.fsm.flush()
	found, due, err := s.state.loadLive()
	require.NoError(t, err)
	require.Equal(t, dueOf(due), dueOf(s.fsm.due))
	require.Equal(t, heldByAll(found), heldByAll(s.fsm.sessions))
	require.ElementsMatch(t, found.EndedSessions(), s.fsm.sessions.EndedSessions())
}

// dueFlights has what a table of due flights answers at the end of time.
type dueFlights struct {
	Overdue []flight.ID
	Pools   map[string]flight.PoolStatus
	Ready   map[string][]flight.ID
	Lane    map[flight.ID]bool // the jobs of lane a, and whether they may open
}

func dueOf(d *flight.Due) dueFlights {
	end := &flight.Header{Now: math.MaxInt64 / 2}
	all := dueFlights{Overdue: slices.Collect(d.Overdue(end)), Pools: make(map[string]flight.PoolStatus), Ready: make(map[string][]flight.ID)}
	for p := range d.Pools() {
		all.Pools[p.Action] = p
		all.Ready[p.Action] = slices.Collect(d.ReadyJobs(p.Namespace, p.Action, true))
		all.Lane = maps.Collect(d.LaneJobs(p.Namespace, p.Action, "a"))
	}
	return all
}

func heldByAll(s *flight.Sessions) map[flight.Session][]flight.ID {
	all := make(map[flight.Session][]flight.ID)
	for session := range s.Holders() {
		all[session], _ = s.HeldFlights(session.ID, flight.ID{}, s.HeldCount())
	}
	return all
}

// After a crash at any moment, with any part of the unsynced data, every acknowledged receipt exists, the state is a
// prefix of the log, and the ledger continues. Five runs in a row; make long repeats them more often.
func TestCrashAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rounds := uint64(8)
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, round))
			fs := vfs.NewCrashableMem()
			known := new(knownFlights)
			for life := range 5 {
				fs = crashUnderLoad(t, fs, known, rng, life*1000)
			}
			s := openStore(t, memConfig(fs))
			requireKnown(t, s, known)
			requireConsistent(t, s)
		})
	}
}

// crashUnderLoad runs a ledger under load and returns the file system as a crash in the middle leaves it.
func crashUnderLoad(t *testing.T, fs *vfs.MemFS, known *knownFlights, rng *rand.Rand, from int) *vfs.MemFS {
	cfg := memConfig(fs)
	cfg.Log = LogConfig{SnapshotBytes: uint64(2000 + rng.IntN(60_000)), Trailing: uint64(1 + rng.IntN(20_000))}
	s, err := Open(context.Background(), cfg)
	require.NoError(t, err)
	requireKnown(t, s, known)
	requireConsistent(t, s)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for w := range 8 {
		callers.Go(func() {
			for i := from + w; ; i += 8 {
				select {
				case <-stop:
					return
				default:
				}
				known.add(i, openAndReport(t, s, i))
				if i%3 == 0 {
					time.Sleep(time.Duration(i%7) * 20 * time.Millisecond) // so that mem batches are flushed, too
				}
				if i >= from+900 {
					return
				}
			}
		})
	}
	time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
	known.mu.Lock() // no caller is answered between the crash and the copy of the receipts
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
	acknowledged := make(map[int]flight.Receipt, len(known.receipts))
	for n, r := range known.receipts {
		acknowledged[n] = r
	}
	known.mu.Unlock()
	close(stop)
	callers.Wait()
	require.NoError(t, s.Close(context.Background()))
	known.receipts = acknowledged
	return crashed
}

// newClosedLedger creates a ledger, opens and reports the flights numbered below flights, and closes it.
func newClosedLedger(t *testing.T, cfg Config, flights int) *knownFlights {
	t.Helper()
	s, err := Open(context.Background(), cfg)
	require.NoError(t, err)
	known := new(knownFlights)
	for n := range flights {
		known.add(n, openAndReport(t, s, n))
	}
	require.NoError(t, s.Close(context.Background()))
	return known
}

// A log that ends anywhere in its last records has the receipts before them. Package pebblelog cuts the log at every byte.
func TestLogTruncatedInItsLastRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		known := new(knownFlights)
		for n := range 20 {
			known.add(n, openAndReport(t, s, n))
		}
		s.fsm.flush()
		before := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
		name := newestIn(t, before, "ledger/log", ".log")
		short, err := readFile(before, name)
		require.NoError(t, err)
		openAndReport(t, s, 20)
		openAndReport(t, s, 21)
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
		long, err := readFile(after, name)
		require.NoError(t, err)
		require.NoError(t, s.Close(context.Background()))
		for cut := len(short); cut < len(long); cut += 1 + (len(long)-len(short))/30 {
			copied := vfs.NewMem()
			_, err := vfs.Clone(before, copied, "ledger", "ledger")
			require.NoError(t, err)
			require.NoError(t, writeSynced(copied, name, long[:cut]))
			reopened, err := Open(context.Background(), memConfig(copied))
			require.NoError(t, err, "cut at %d", cut)
			requireKnown(t, reopened, known)
			requireConsistent(t, reopened)
			require.NoError(t, reopened.Close(context.Background()))
		}
	})
}

func newestIn(t *testing.T, fs vfs.FS, dir, suffix string) string {
	t.Helper()
	names, err := fs.List(dir)
	require.NoError(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			newest = max(newest, name)
		}
	}
	require.NotEmpty(t, newest)
	return fs.PathJoin(dir, newest)
}

// Open rejects a ledger whose log has lost durable, applied entries at its end.
func TestLogShorterThanTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		openAndReport(t, s, 1)
		index, _ := s.Applied()
		require.NoError(t, s.log.DeleteRange(index, index))
		require.NoError(t, s.Close(context.Background()))
		_, err = Open(context.Background(), memConfig(fs))
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "the log ends at entry")
	})
}

// The state may fall back to a snapshot after a power cut. The log may not: Open rejects a log that ends before this
// node's own snapshot.
func TestLogShorterThanItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		s, err := Open(context.Background(), memConfig(mem))
		require.NoError(t, err)
		known := new(knownFlights)
		known.add(1, openAndReport(t, s, 1))
		require.NoError(t, s.takeSnapshot())
		index, _ := s.Applied()
		known.add(2, openAndReport(t, s, 2))
		last, _ := s.Applied()
		whole := mem.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(t, s.log.DeleteRange(index, last))
		cut := mem.CrashClone(vfs.CrashCloneCfg{})
		require.NoError(t, s.Close(context.Background()))
		requireKnown(t, openStore(t, memConfig(whole)), known)
		_, err = Open(context.Background(), memConfig(cut))
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "a snapshot was taken here")
	})
}

func TestStateDirectoryDeleted(t *testing.T) {
	removeState := func(t *testing.T, fs vfs.FS) {
		require.NoError(t, fs.RemoveAll("ledger/"+stateName(1)))
	}
	t.Run("before the first snapshot: the whole log is applied again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			known := newClosedLedger(t, memConfig(fs), 50)
			removeState(t, fs)
			s := openStore(t, memConfig(fs))
			requireKnown(t, s, known)
			requireConsistent(t, s)
		})
	})
	t.Run("after a snapshot: it is restored, and the rest of the log is applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs, known := compacted(t)
			removeState(t, fs)
			s := openStore(t, memConfig(fs))
			requireKnown(t, s, known)
			requireConsistent(t, s)
			first, _ := s.log.FirstIndex()
			require.Greater(t, first, uint64(1), "the log alone is not sufficient")
			require.Equal(t, stateName(2), s.state.name)
		})
	})
	t.Run("after a snapshot that is gone, too: refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs, _ := compacted(t)
			removeState(t, fs)
			require.NoError(t, fs.RemoveAll("ledger/"+snapshotDir))
			_, err := Open(context.Background(), memConfig(fs))
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorContains(t, err, "neither in the state, nor in a readable snapshot, nor in the log")
		})
	})
	t.Run("after a snapshot that cannot be read: refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs, _ := compacted(t)
			removeState(t, fs)
			names, err := fs.List("ledger/" + snapshotDir)
			require.NoError(t, err)
			require.Len(t, names, 1)
			dir := fs.PathJoin("ledger", snapshotDir, names[0], checkpointDir)
			corruptFile(t, fs, newestIn(t, fs, dir, ".sst"))
			_, err = Open(context.Background(), memConfig(fs))
			require.ErrorIs(t, err, ErrDamaged)
		})
	})
}

// A complete state needs no snapshot, however short its log is.
func TestSnapshotsDeleted(t *testing.T) {
	for _, flights := range []int{3, 100} {
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			s, err := Open(context.Background(), memConfig(fs))
			require.NoError(t, err)
			known := new(knownFlights)
			for n := range flights {
				known.add(n, openAndReport(t, s, n))
			}
			propose(t, s, redactOf(openAndReportSecret(t, s, flights), 1))
			_, err = s.Scrub(context.Background()) // truncates the log
			require.NoError(t, err)
			require.NoError(t, s.Close(context.Background()))
			require.NoError(t, fs.RemoveAll("ledger/"+snapshotDir))
			reopened := openStore(t, memConfig(fs))
			requireKnown(t, reopened, known)
			requireConsistent(t, reopened)
			openAndReport(t, reopened, flights+1)
		})
	}
}

// Without CURRENT no file says which state is valid, so Open removes none.
func TestCurrentDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, known := compacted(t)
		require.NoError(t, fs.RemoveAll("ledger/"+stateName(1)))
		s, err := Open(context.Background(), memConfig(fs)) // restores the snapshot
		require.NoError(t, err)
		require.Equal(t, stateName(2), s.state.name)
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, fs.RemoveAll("ledger/"+snapshotDir))
		current, err := readFile(fs, "ledger/"+currentFile)
		require.NoError(t, err)
		require.NoError(t, fs.Remove("ledger/"+currentFile))
		_, err = Open(context.Background(), memConfig(fs))
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, currentFile)
		require.NoError(t, writeFile(fs, "ledger", currentFile, current))
		reopened := openStore(t, memConfig(fs))
		requireKnown(t, reopened, known)
		requireConsistent(t, reopened)
	})
}

// A snapshot's meta file is trusted only with its checksum: with a wrong index raft would skip the entries up to the
// index of the checkpoint.
func TestSnapshotMetaDamaged(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"index": func(b []byte) []byte { return bytes.Replace(b, []byte(`"index":8`), []byte(`"index":9`), 1) },
		"configuration": func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"configuration":"`), []byte(`"configuration":"AAAA`), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs, known := compacted(t)
				names, err := fs.List("ledger/" + snapshotDir)
				require.NoError(t, err)
				dir := fs.PathJoin("ledger", snapshotDir, names[0])
				meta, err := readFile(fs, fs.PathJoin(dir, snapshotMetaFile))
				require.NoError(t, err)
				require.NotEqual(t, meta, damage(meta), string(meta))
				require.NoError(t, writeFile(fs, dir, snapshotMetaFile, damage(meta)))
				copied := vfs.NewMem()
				_, err = vfs.Clone(fs, copied, "ledger", "ledger")
				require.NoError(t, err)
				s := openStore(t, memConfig(fs))
				requireKnown(t, s, known)
				requireConsistent(t, s)

				require.NoError(t, copied.RemoveAll("ledger/"+stateName(1))) // now the start needs the snapshot
				_, err = Open(context.Background(), memConfig(copied))
				require.ErrorIs(t, err, ErrDamaged)
			})
		})
	}
}

// compacted returns a ledger with a truncated log.
func compacted(t *testing.T) (vfs.FS, *knownFlights) {
	t.Helper()
	fs := vfs.NewMem()
	cfg := memConfig(fs)
	cfg.Log.Trailing = 5
	s, err := Open(context.Background(), cfg)
	require.NoError(t, err)
	known := new(knownFlights)
	for n := range 60 {
		known.add(n, openAndReport(t, s, n))
		if n == 40 {
			s.fsm.flush()
			require.NoError(t, s.state.db.Flush(context.Background())) // so that the checkpoint links tables
			require.NoError(t, s.takeSnapshot())
		}
	}
	require.NoError(t, s.Close(context.Background()))
	return fs, known
}

// corruptFile changes a byte in the middle of a file.
func corruptFile(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	b, err := readFile(fs, name)
	require.NoError(t, err)
	changed := bytes.Clone(b)
	for i := range 16 {
		changed[len(changed)*i/17] ^= 0x5a
	}
	require.NoError(t, writeSynced(fs, name, changed))
}

func TestLogDirectoryDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		newClosedLedger(t, memConfig(fs), 5)
		require.NoError(t, fs.RemoveAll("ledger/"+logDir))
		_, err := Open(context.Background(), memConfig(fs))
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorContains(t, err, "forgotten its votes")
	})
}

// A block with a wrong checksum is never used as data: Open or the read fails.
func TestCorruptedBlock(t *testing.T) {
	t.Run("of the state", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			newClosedLedger(t, memConfig(fs), 50)
			corruptFile(t, fs, newestIn(t, fs, "ledger/"+stateName(1), ".sst"))
			s, err := Open(context.Background(), memConfig(fs))
			if err == nil {
				_, err = s.Flight(testKey(1).FlightID())
				require.NoError(t, s.Close(context.Background()))
			}
			require.Error(t, err)
			require.False(t, oserror.IsNotExist(err))
		})
	})
	t.Run("of the log", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			fs := vfs.NewMem()
			s, err := Open(context.Background(), memConfig(fs))
			require.NoError(t, err)
			for n := range 200 {
				openAndReport(t, s, n)
			}
			require.NoError(t, s.Close(context.Background()))
			require.NoError(t, fs.RemoveAll("ledger/"+stateName(1))) // so that the start needs the whole log
			corruptMiddle(t, fs, newestIn(t, fs, "ledger/"+logDir, ".log"))
			_, err = Open(context.Background(), memConfig(fs))
			require.ErrorIs(t, err, ErrDamaged)
		})
	})
}

func corruptMiddle(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	b, err := readFile(fs, name)
	require.NoError(t, err)
	changed := bytes.Clone(b)
	changed[len(changed)/2] ^= 0x5a
	require.NoError(t, writeSynced(fs, name, changed))
}
