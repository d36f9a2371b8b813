package clusterstore

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// A memBatch that began during the previous flush must see the changes of that flush, even if it read the state
// before they were there, and none of them is cached.

// whileWriting runs look during a flush, with a new active memBatch.
func whileWriting(t *testing.T, m *fsm, look func()) {
	t.Helper()
	w, head := m.beginFlush()
	require.NotNil(t, w)
	look()
	require.NoError(t, w.commit(head))
	m.finishFlush()
}

// newStoreWithSmallCache returns a ledger whose cache holds one record per shard.
func newStoreWithSmallCache(t *testing.T) *Store {
	cfg := memConfig(vfs.NewMem())
	cfg.Memory.Flights = cacheShards
	return openStore(t, cfg)
}

// evictFromCache opens and reports a key numbered from on that shares its cache shard with key n, so that n is
// evicted.
func evictFromCache(t *testing.T, s *Store, n, from int) {
	t.Helper()
	for testKey(from).FlightID()[0]%cacheShards != testKey(n).FlightID()[0]%cacheShards {
		from++
	}
	openAndReport(t, s, from)
}

// openOtherNonce returns an Open of key n by another caller than openOf.
func openOtherNonce(s *Store, n int) *flight.Open {
	open := openOf(s, testKey(n), n)
	open.Nonce, open.Session = nonce(n+1<<30), sessionOf(s, "somebody-else")
	return open
}

func countOne(key flight.Key) *flight.CountDuplicates {
	return &flight.CountDuplicates{Key: key, ID: flight.CountID{Source: 1, Number: 1},
		Stats: flight.DuplicateStats{Count: 1, First: 1, Last: 1, Callers: []flight.Caller{{Actor: "a", At: 1}}}}
}

func TestMemBatch_SeesOpenFlushedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreWithSmallCache(t)
		openAndReport(t, s, 2)
		evictFromCache(t, s, 2, 100)
		s.fsm.flush()
		require.Equal(t, flight.DecisionProceed, propose(t, s, openOf(s, testKey(1), 1)).Decision)
		whileWriting(t, s.fsm, func() {
			require.Equal(t, flight.DecisionReplay, propose(t, s, openOf(s, testKey(2), 2)).Decision)
		})
		evictFromCache(t, s, 1, 1000)
		require.NotEqual(t, flight.DecisionProceed, propose(t, s, openOtherNonce(s, 1)).Decision, "the effect would happen twice")
		s.fsm.flush()
		requireConsistent(t, s)
	})
}

func TestMemBatch_SeesTombstoneFlushedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := memConfig(vfs.NewMem())
		cfg.Memory = Memory{BlockCache: 4 << 20, MemTable: 1 << 20}
		s := openStore(t, cfg)
		importFlights(t, s, 1, 3)
		time.Sleep(2 * time.Second)
		s.fsm.flush()
		s.fsm.cache.clear() // as after a start
		expire := func(n int) {
			require.Equal(t, flight.DecisionAccepted, propose(t, s, &flight.Expire{Key: testKey(n), Generation: 1}).Decision)
		}
		expire(1)
		whileWriting(t, s.fsm, func() { expire(2) })
		propose(t, s, countOne(testKey(1)))
		s.fsm.flush()
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Equal(t, flight.StateExpired, f.State)
		requireConsistent(t, s)
	})
}

func TestMemBatch_SeesRedactionFlushedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStoreWithSmallCache(t)
		key := openAndReportSecret(t, s, 2)
		openAndReport(t, s, 3)
		evictFromCache(t, s, 3, 100)
		s.fsm.flush()
		require.Equal(t, flight.DecisionAccepted, propose(t, s, redactOf(key, 1)).Decision)
		whileWriting(t, s.fsm, func() {
			require.Equal(t, flight.DecisionReplay, propose(t, s, openOf(s, testKey(3), 3)).Decision)
		})
		evictFromCache(t, s, 2, 1000)
		propose(t, s, countOne(key))
		s.fsm.flush()
		_, err := s.Body(key.FlightID(), 1, BodyReceipt)
		require.ErrorIs(t, err, ErrNoBody)
	})
}

// Repeated Opens of a key that another caller opened a moment ago never get DecisionProceed, with the store's own
// flush at work and an almost empty cache.
func TestMemBatch_NeverOpensTwice(t *testing.T) {
	const callers, rounds = 16, 150
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := newStoreWithSmallCache(t)
	var group sync.WaitGroup
	for w := range callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := range rounds {
				if r, err := s.Propose(context.Background(), openOf(s, testKey(w*rounds+n), n)); err != nil || r.Decision != flight.DecisionProceed {
					t.Errorf("key %d of %d: %v, %v", n, w, r.Decision, err)
					return
				}
				for range 8 {
					back := w*rounds + n - rng.IntN(min(n+1, 200))
					r, err := s.Propose(context.Background(), openOtherNonce(s, back))
					if err != nil || r.Decision == flight.DecisionProceed && r.Flight.AttemptCount == 1 {
						t.Errorf("key %d again: %v, %v", back, r.Decision, err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	s.fsm.flush()
	requireConsistent(t, s)
}

// An incomplete snapshot changes nothing.
func TestRestoreOfABrokenSnapshotChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := memConfig(vfs.NewMem())
		cfg.ClusterID = "c"
		from := openStore(t, cfg)
		for n := range 5 {
			openAndReport(t, from, n)
		}
		var broken bytes.Buffer
		w, err := newRowWriter(&broken, streamHeader{Cluster: "c", Applied: 1})
		require.NoError(t, err)
		for key, value := range dump(t, from) {
			if key[0] != filterRow {
				require.NoError(t, w.row([]byte(key), []byte(value)))
			}
		}
		require.NoError(t, w.end())

		cfg = memConfig(vfs.NewMem())
		cfg.ClusterID = "c"
		s := openStore(t, cfg)
		for n := range 60 {
			openAndReport(t, s, 1000+n)
		}
		before := s.Counts()
		require.ErrorIs(t, s.fsm.Restore(io.NopCloser(&broken)), ErrDamaged)
		require.Equal(t, before, s.Counts())
		require.Equal(t, flight.DecisionReplay, propose(t, s, openOf(s, testKey(1001), 1001)).Decision)
		requireConsistent(t, s)
	})
}

// A flight that is in an index of a restored state can be read.
func TestRestore_RestoredFlightsAreVisible(t *testing.T) {
	cfg := memConfig(vfs.NewMem())
	cfg.ClusterID = "c"
	from := openStore(t, cfg)
	for n := range 20 {
		propose(t, from, openOf(from, testKey(n), n))
	}
	require.NoError(t, from.takeSnapshot())
	list, err := from.snaps.List()
	require.NoError(t, err)
	_, rows, err := from.snaps.Open(list[0].ID)
	require.NoError(t, err)

	cfg = memConfig(vfs.NewMem())
	cfg.ClusterID = "c"
	s := openStore(t, cfg)
	last := &s.fsm.cache.shards[cacheShards-1]
	last.mu.Lock() // a restore that has replaced the state waits here
	restored := make(chan error)
	go func() { restored <- s.fsm.Restore(rows) }()
	for replaced := false; !replaced; runtime.Gosched() {
		s.state.mu.RLock()
		replaced = s.state.name == stateName(2)
		s.state.mu.RUnlock()
	}
	found := 0
	for n := range 20 {
		id := testKey(n).FlightID()
		if s.fsm.cache.shard(id) == last {
			continue
		}
		f, err := s.Flight(id)
		if err == nil && f != nil {
			found++
		}
	}
	last.mu.Unlock()
	require.NoError(t, <-restored)
	require.NoError(t, rows.Close())
	require.Greater(t, found, 10)
}

// A command that could not be decoded again is rejected before it enters the log, and has no effect.
func TestPropose_RejectsUndecodableCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		_, err := s.Propose(t.Context(), &flight.Import{Key: testKey(1), Outcome: flight.OutcomeSucceeded, ExternalID: "ch_1", Actor: "Jos\xe9"})
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid)
		_, err = s.Report(t.Context(), &flight.Report{Key: testKey(1), Generation: 1, Outcome: flight.OutcomeSucceeded, Error: "Jos\xe9"})
		require.ErrorAs(t, err, &invalid)
		require.Zero(t, s.Spooled())
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
	})
}

// The caller may reuse the slice of a body after the reply.
func TestBodies_AreCopied(t *testing.T) {
	for _, length := range []int{maxInlineBody, maxInlineBody + 1} {
		s := openStore(t, memConfig(vfs.NewMem()))
		input, body := bytes.Repeat([]byte("i"), length), bytes.Repeat([]byte("b"), length)
		open := openOf(s, testKey(1), 1)
		open.Submission.Input = flight.NewBlob("text/plain", input, flight.MaxInput)
		report := reportOf(testKey(1), propose(t, s, open).Token, "")
		report.Body = flight.NewBlob("text/plain", body, flight.MaxReceiptBody)
		propose(t, s, report)
		clear(input)
		clear(body)
		s.fsm.flush()
		for part, want := range map[BodyKind]string{BodyInput: "i", BodyReceipt: "b"} {
			kept, err := s.Body(testKey(1).FlightID(), 1, part)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte(want), length), kept)
		}
	}
}

// An fsm that waits for a flush is not left waiting by Close.
func TestMemBatch_FullOneIsFlushedDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := openStore(t, memConfig(vfs.NewMem()))
		s := &Store{storage: storage{reader: &reader{fsm: newFSM(&open.cfg, open.state, open.snaps), closing: make(chan struct{})}}, applyStopped: make(chan struct{})}
		close(s.closing)
		s.workers.Add(1)
		go s.runFlush()
		synctest.Wait()
		m := s.fsm
		m.mu.Lock()
		m.active.hasEntries, m.active.bytes = true, memBatchBytes
		m.dirty <- struct{}{}
		m.waitForSpaceLocked()
		require.False(t, m.active.full())
		m.mu.Unlock()
		close(s.applyStopped)
		s.workers.Wait()
	})
}
