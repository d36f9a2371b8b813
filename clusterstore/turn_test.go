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
func whileWriting(t *testing.T, m *machine, look func()) {
	t.Helper()
	w, head := m.begin()
	require.NotNil(t, w)
	look()
	require.NoError(t, w.write(head))
	m.finish()
}

// newStoreWithSmallCache returns a ledger whose cache holds one record per shard.
func crowded(t *testing.T) *Store {
	cfg := memConfig(vfs.NewMem())
	cfg.Memory.Flights = cacheShards
	return openStore(t, cfg)
}

// evictFromCache opens and reports a key numbered from on that shares its cache shard with key n, so that n is
// evicted.
func crowdOut(t *testing.T, s *Store, n, from int) {
	t.Helper()
	for testKey(from).FlightID()[0]%cacheShards != testKey(n).FlightID()[0]%cacheShards {
		from++
	}
	fly(t, s, from)
}

// openOtherNonce returns an Open of key n by another caller than openOf.
func stranger(s *Store, n int) *flight.Open {
	open := openOf(s, testKey(n), n)
	open.Nonce, open.Session = nonce(n+1<<30), sessionOf(s, "somebody-else")
	return open
}

func aDuplicate(key flight.Key) *flight.Count {
	return &flight.Count{Key: key, Telling: flight.Telling{Source: 1, Number: 1},
		Tally: flight.Tally{Count: 1, First: 1, Last: 1, Callers: []flight.Caller{{Who: "a", At: 1}}}}
}

func TestTurnSeesAnOpenWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := crowded(t)
		fly(t, s, 2)
		crowdOut(t, s, 2, 100)
		s.machine.flush()
		require.Equal(t, flight.Proceed, propose(t, s, openOf(s, testKey(1), 1)).Decision)
		whileWriting(t, s.machine, func() {
			require.Equal(t, flight.Replay, propose(t, s, openOf(s, testKey(2), 2)).Decision)
		})
		crowdOut(t, s, 1, 1000)
		require.NotEqual(t, flight.Proceed, propose(t, s, stranger(s, 1)).Decision, "the effect would happen twice")
		s.machine.flush()
		requireConsistent(t, s)
	})
}

func TestTurnSeesATombstoneWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := memConfig(vfs.NewMem())
		cfg.Memory = Memory{BlockCache: 4 << 20, MemTable: 1 << 20}
		s := openStore(t, cfg)
		bring(t, s, 1, 3)
		time.Sleep(2 * time.Second)
		s.machine.flush()
		s.machine.cache.clear() // as after a start
		expire := func(n int) {
			require.Equal(t, flight.Accepted, propose(t, s, &flight.Expire{Key: testKey(n), Generation: 1}).Decision)
		}
		expire(1)
		whileWriting(t, s.machine, func() { expire(2) })
		propose(t, s, aDuplicate(testKey(1)))
		s.machine.flush()
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Equal(t, flight.Expired, f.State)
		requireConsistent(t, s)
	})
}

func TestTurnSeesARedactionWrittenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := crowded(t)
		key := flySecret(t, s, 2)
		fly(t, s, 3)
		crowdOut(t, s, 3, 100)
		s.machine.flush()
		require.Equal(t, flight.Accepted, propose(t, s, redactOf(key, 1)).Decision)
		whileWriting(t, s.machine, func() {
			require.Equal(t, flight.Replay, propose(t, s, openOf(s, testKey(3), 3)).Decision)
		})
		crowdOut(t, s, 2, 1000)
		propose(t, s, aDuplicate(key))
		s.machine.flush()
		_, err := s.Body(key.FlightID(), 1, Receipt)
		require.ErrorIs(t, err, ErrNoBody)
	})
}

// Repeated Opens of a key that another caller opened a moment ago never get DecisionProceed, with the store's own
// flush at work and an almost empty cache.
func TestTurnsNeverOpenTwice(t *testing.T) {
	const callers, rounds = 16, 400
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := crowded(t)
	var group sync.WaitGroup
	for w := range callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for n := range rounds {
				if r, err := s.Propose(context.Background(), openOf(s, testKey(w*rounds+n), n)); err != nil || r.Decision != flight.Proceed {
					t.Errorf("key %d of %d: %v, %v", n, w, r.Decision, err)
					return
				}
				for range 8 {
					back := w*rounds + n - rng.IntN(min(n+1, 200))
					r, err := s.Propose(context.Background(), stranger(s, back))
					if err != nil || r.Decision == flight.Proceed && r.Flight.AttemptCount == 1 {
						t.Errorf("key %d again: %v, %v", back, r.Decision, err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	s.machine.flush()
	requireConsistent(t, s)
}

// An incomplete snapshot changes nothing.
func TestRestoreOfABrokenSnapshotChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := memConfig(vfs.NewMem())
		cfg.ClusterID = "c"
		from := openStore(t, cfg)
		for n := range 5 {
			fly(t, from, n)
		}
		var broken bytes.Buffer
		w, err := newRowWriter(&broken, streamHead{Cluster: "c", Applied: 1})
		require.NoError(t, err)
		for key, value := range dump(t, from) {
			if key[0] != rollRow {
				require.NoError(t, w.row([]byte(key), []byte(value)))
			}
		}
		require.NoError(t, w.end())

		cfg = memConfig(vfs.NewMem())
		cfg.ClusterID = "c"
		s := openStore(t, cfg)
		for n := range 60 {
			fly(t, s, 1000+n)
		}
		before := s.Counts()
		require.ErrorIs(t, s.machine.Restore(io.NopCloser(&broken)), ErrDamaged)
		require.Equal(t, before, s.Counts())
		require.Equal(t, flight.Replay, propose(t, s, openOf(s, testKey(1001), 1001)).Decision)
		requireConsistent(t, s)
	})
}

// A flight that is in an index of a restored state can be read.
func TestRestore_WhatTheStateHoldsIsNotDenied(t *testing.T) {
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
	last := &s.machine.cache.shards[cacheShards-1]
	last.mu.Lock() // a restore that has replaced the state waits here
	restored := make(chan error)
	go func() { restored <- s.machine.Restore(rows) }()
	for replaced := false; !replaced; runtime.Gosched() {
		s.state.mu.RLock()
		replaced = s.state.name == stateName(2)
		s.state.mu.RUnlock()
	}
	found := 0
	for n := range 20 {
		id := testKey(n).FlightID()
		if s.machine.cache.shard(id) == last {
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
func TestProposeRefusesWhatNobodyCouldRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		_, err := s.Propose(t.Context(), &flight.Import{Key: testKey(1), Outcome: flight.Succeeded, ExternalID: "ch_1", Who: "Jos\xe9"})
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid)
		_, err = s.Report(t.Context(), &flight.Report{Key: testKey(1), Generation: 1, Outcome: flight.Succeeded, Error: "Jos\xe9"})
		require.ErrorAs(t, err, &invalid)
		require.Zero(t, s.Spooled())
		f, err := s.Flight(testKey(1).FlightID())
		require.NoError(t, err)
		require.Nil(t, f)
	})
}

// The caller may reuse the slice of a body after the reply.
func TestBodiesAreTheLedgersOwn(t *testing.T) {
	for _, length := range []int{longestShort, longestShort + 1} {
		s := openStore(t, memConfig(vfs.NewMem()))
		input, body := bytes.Repeat([]byte("i"), length), bytes.Repeat([]byte("b"), length)
		open := openOf(s, testKey(1), 1)
		open.Submission.Input = flight.NewBlob("text/plain", input, flight.MaxInput)
		report := reportOf(testKey(1), propose(t, s, open).Token, "")
		report.Body = flight.NewBlob("text/plain", body, flight.MaxReceiptBody)
		propose(t, s, report)
		clear(input)
		clear(body)
		s.machine.flush()
		for part, want := range map[Part]string{Input: "i", Receipt: "b"} {
			kept, err := s.Body(testKey(1).FlightID(), 1, part)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte(want), length), kept)
		}
	}
}

// An fsm that waits for a flush is not left waiting by Close.
func TestFullTurnIsWrittenWhileTheStoreCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := openStore(t, memConfig(vfs.NewMem()))
		s := &Store{machine: newMachine(&open.cfg, open.state, open.snaps), closing: make(chan struct{}), quiet: make(chan struct{})}
		close(s.closing)
		s.workers.Add(1)
		go s.flushes()
		synctest.Wait()
		m := s.machine
		m.mu.Lock()
		m.turn.moved, m.turn.bytes = true, turnBytes
		m.dirty <- struct{}{}
		m.makeRoomLocked()
		require.False(t, m.turn.full())
		m.mu.Unlock()
		close(s.quiet)
		s.workers.Wait()
	})
}
