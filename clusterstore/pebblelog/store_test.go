package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

func options(fs vfs.FS) *pebble.Options {
	return pebblelog.Options(&pebble.Options{FS: fs, Logger: quiet{}, MemTableSize: 1 << 20})
}

func TestConformance(t *testing.T) {
	testStore(t, func(t *testing.T) raftStore {
		s, err := pebblelog.Open("log", options(vfs.NewMem()))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}

// Raft's own in-memory store passes the same suite, so the suite requires nothing that raft does not.
func TestConformance_RaftInmemStore(t *testing.T) {
	testStore(t, func(*testing.T) raftStore { return inmemStore{raft.NewInmemStore()} })
}

// inmemStore is raft's store with two corrections. GetUint64 returns "not found", which raft's own does not. FirstIndex
// skips missing entries, where raft's own assumes that the log has no gap.
type inmemStore struct{ *raft.InmemStore }

func (s inmemStore) GetUint64(key []byte) (uint64, error) {
	n, err := s.InmemStore.GetUint64(key)
	if err == nil && n == 0 {
		err = errors.New("not found")
	}
	return n, err
}

func (s inmemStore) FirstIndex() (uint64, error) {
	first, err := s.InmemStore.FirstIndex()
	last, _ := s.LastIndex()
	for ; first < last && errors.Is(s.GetLog(first, new(raft.Log)), raft.ErrLogNotFound); first++ {
	}
	return first, err
}

func TestReopen(t *testing.T) {
	fs := vfs.NewMem()
	s, err := pebblelog.Open("log", options(fs))
	require.NoError(t, err)
	require.NoError(t, s.Bootstrap(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}}))
	require.Error(t, s.Bootstrap(raft.Configuration{}), "a log is bootstrapped once")
	require.NoError(t, s.StoreLogs(entries(2, 9, 1)))
	require.NoError(t, s.DeleteRange(1, 3))
	require.NoError(t, s.Close())
	s, err = pebblelog.Open("log", options(fs))
	require.NoError(t, err)
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	require.Equal(t, []uint64{4, 9}, []uint64{first, last})
	termed, err := s.HasTerm()
	require.NoError(t, err)
	require.True(t, termed)
	require.NoError(t, s.Close())
}

// Raft reads the log from a goroutine that may outlive its shutdown, so Close must wait for readers.
func TestCloseWaitsForReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := pebblelog.Open("log", options(vfs.NewMem()))
		require.NoError(t, err)
		require.NoError(t, s.StoreLogs(entries(1, 2, 1)))
		reading, closed := make(chan error, 1), make(chan error, 1)
		read := make(chan struct{})
		go func() {
			reading <- s.Scan(1, func(*raft.Log) error { <-read; return nil })
		}()
		synctest.Wait()
		go func() { closed <- s.Close() }()
		synctest.Wait()
		require.Empty(t, closed, "Close returned during a read")
		close(read)
		require.NoError(t, <-reading)
		require.NoError(t, <-closed)

		require.ErrorIs(t, s.GetLog(1, new(raft.Log)), pebblelog.ErrClosed)
		require.ErrorIs(t, s.Scan(1, nil), pebblelog.ErrClosed)
		require.ErrorIs(t, s.StoreLogs(entries(3, 3, 1)), pebblelog.ErrClosed)
		require.ErrorIs(t, s.DeleteRange(1, 1), pebblelog.ErrClosed)
		require.ErrorIs(t, s.SetUint64([]byte("a"), 1), pebblelog.ErrClosed)
		_, err = s.Get([]byte("a"))
		require.ErrorIs(t, err, pebblelog.ErrClosed)
		require.ErrorIs(t, s.Close(), pebblelog.ErrClosed)
	})
}

func TestScanFindsHoles(t *testing.T) {
	s, err := pebblelog.Open("log", options(vfs.NewMem()))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.StoreLogs(entries(1, 9, 1)))
	seen := 0
	require.NoError(t, s.Scan(3, func(e *raft.Log) error { seen++; return nil }))
	require.Equal(t, 7, seen)
	require.NoError(t, s.DeleteRange(5, 6))
	require.ErrorContains(t, s.Scan(3, func(*raft.Log) error { return nil }), "entry 5 is missing")
}

// A crash may leave any part of the unsynced blocks. All entries that StoreLogs acknowledged are stored, and no batch
// is stored in part.
func TestCrashKeepsWhatWasStored(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, round))
		fs := vfs.NewCrashableMem()
		s, err := pebblelog.Open("log", options(fs))
		require.NoError(t, err)
		next := uint64(1)
		for range rng.IntN(30) {
			batch := entries(next, next+rng.Uint64N(20), 1)
			require.NoError(t, s.StoreLogs(batch))
			next += uint64(len(batch))
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		require.NoError(t, s.Close())
		requireEntries(t, crashed, next-1)
	}
}

func requireEntries(t *testing.T, fs vfs.FS, last uint64) {
	t.Helper()
	s, err := pebblelog.Open("log", options(fs))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	got, _ := s.LastIndex()
	require.Equal(t, last, got)
	count := uint64(0)
	require.NoError(t, s.Scan(1, func(e *raft.Log) error {
		count++
		require.Equal(t, fmt.Sprintf("entry %d of term 1", count), string(e.Data))
		return nil
	}))
	require.Equal(t, last, count)
}

// A write-ahead log that is truncated anywhere in its last record ends at the record before: the torn write is
// discarded as a whole.
func TestTruncatedAtEveryByte(t *testing.T) {
	fs := vfs.NewCrashableMem()
	everything := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))}
	s, err := pebblelog.Open("log", options(fs))
	require.NoError(t, err)
	require.NoError(t, s.StoreLogs(entries(1, 5, 1)))
	before := fs.CrashClone(everything)
	require.NoError(t, s.StoreLogs(entries(6, 8, 1)))
	after := fs.CrashClone(everything)
	require.NoError(t, s.Close())
	name := newestWAL(t, after)
	short, whole := readFile(t, before, name), readFile(t, after, name)
	require.Greater(t, len(whole), len(short))
	for cut := len(short); cut < len(whole); cut++ {
		copied := vfs.NewMem()
		_, err := vfs.Clone(after, copied, "log", "log")
		require.NoError(t, err)
		f, err := copied.Create(name, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write(bytes.Clone(whole[:cut])) // a vfs file may change the slice that it is given
		require.NoError(t, err)
		require.NoError(t, f.Close())
		requireEntries(t, copied, 5)
	}
}

func newestWAL(t *testing.T, fs vfs.FS) string {
	names, err := fs.List("log")
	require.NoError(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".log") && name > newest {
			newest = name
		}
	}
	require.NotEmpty(t, newest)
	return fs.PathJoin("log", newest)
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	info, err := fs.Stat(name)
	require.NoError(t, err)
	f, err := fs.Open(name)
	require.NoError(t, err)
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return b
}
