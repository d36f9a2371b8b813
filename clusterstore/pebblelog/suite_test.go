package pebblelog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// raftStore stores raft's entries and its stable values.
type raftStore interface {
	raft.LogStore
	raft.StableStore
}

// testStore is the conformance suite for a log and stable store: open returns an empty one, which the test closes
// if it has a Close method.
func testStore(t *testing.T, open func(t *testing.T) raftStore) {
	for name, test := range map[string]func(*testing.T, raftStore){
		"empty": testEmpty, "entries": testEntries, "truncate": testTruncate, "overwrite": testOverwrite,
		"hole": testHole, "large": testLarge, "stable": testStable,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// entries returns entries from..to; their data holds index and term.
func entries(from, to, term uint64) []*raft.Log {
	var all []*raft.Log
	for i := from; i <= to; i++ {
		all = append(all, &raft.Log{Index: i, Term: term, Type: raft.LogCommand, Data: fmt.Appendf(nil, "entry %d of term %d", i, term)})
	}
	return all
}

func requireEnds(t *testing.T, s raftStore, first, last uint64) {
	t.Helper()
	f, err := s.FirstIndex()
	require.NoError(t, err)
	l, err := s.LastIndex()
	require.NoError(t, err)
	require.Equal(t, []uint64{first, last}, []uint64{f, l})
}

func requireEntry(t *testing.T, s raftStore, want *raft.Log) {
	t.Helper()
	var got raft.Log
	require.NoError(t, s.GetLog(want.Index, &got))
	require.True(t, want.AppendedAt.Equal(got.AppendedAt))
	got.AppendedAt = want.AppendedAt
	require.Equal(t, *want, got)
}

func testEmpty(t *testing.T, s raftStore) {
	requireEnds(t, s, 0, 0)
	require.ErrorIs(t, s.GetLog(1, new(raft.Log)), raft.ErrLogNotFound)
	require.NoError(t, s.StoreLogs(nil))
	requireEnds(t, s, 0, 0)
}

func testEntries(t *testing.T, s raftStore) {
	entry := &raft.Log{Index: 5, Term: 2, Type: raft.LogConfiguration, Data: []byte{0, 1, 255}, Extensions: []byte("x"),
		AppendedAt: time.Unix(1700000000, 123456789)}
	require.NoError(t, s.StoreLog(entry))
	requireEnds(t, s, 5, 5)
	requireEntry(t, s, entry)
	more := entries(6, 40, 3)
	require.NoError(t, s.StoreLogs(more))
	requireEnds(t, s, 5, 40)
	for _, e := range more {
		requireEntry(t, s, e)
	}
	require.ErrorIs(t, s.GetLog(4, new(raft.Log)), raft.ErrLogNotFound)
	require.ErrorIs(t, s.GetLog(41, new(raft.Log)), raft.ErrLogNotFound)
	var kept raft.Log
	require.NoError(t, s.GetLog(6, &kept))
	require.NoError(t, s.GetLog(7, new(raft.Log)))
	require.Equal(t, more[0].Data, kept.Data, "what was read stays as it was")
}

func testTruncate(t *testing.T, s raftStore) {
	require.NoError(t, s.StoreLogs(entries(1, 20, 1)))
	require.NoError(t, s.DeleteRange(1, 5))
	requireEnds(t, s, 6, 20)
	require.ErrorIs(t, s.GetLog(5, new(raft.Log)), raft.ErrLogNotFound)
	require.NoError(t, s.DeleteRange(16, 20))
	requireEnds(t, s, 6, 15)
	require.ErrorIs(t, s.GetLog(16, new(raft.Log)), raft.ErrLogNotFound)
	next := entries(16, 18, 2)
	require.NoError(t, s.StoreLogs(next))
	requireEnds(t, s, 6, 18)
	requireEntry(t, s, next[2])
	require.NoError(t, s.DeleteRange(6, 18))
	requireEnds(t, s, 0, 0)
	require.NoError(t, s.StoreLogs(entries(30, 31, 4)))
	requireEnds(t, s, 30, 31)
}

func testOverwrite(t *testing.T, s raftStore) {
	require.NoError(t, s.StoreLogs(entries(1, 3, 1)))
	replacing := entries(3, 4, 2)
	require.NoError(t, s.StoreLogs(replacing))
	requireEnds(t, s, 1, 4)
	requireEntry(t, s, replacing[0])
}

func testHole(t *testing.T, s raftStore) {
	require.NoError(t, s.StoreLogs(entries(1, 3, 1)))
	require.NoError(t, s.StoreLogs(entries(10, 11, 2)))
	requireEnds(t, s, 1, 11)
	require.ErrorIs(t, s.GetLog(5, new(raft.Log)), raft.ErrLogNotFound)
	require.NoError(t, s.DeleteRange(1, 3))
	requireEnds(t, s, 10, 11)
}

func testLarge(t *testing.T, s raftStore) {
	e := &raft.Log{Index: 1, Term: 1, Data: make([]byte, 3<<20)}
	for i := range e.Data {
		e.Data[i] = byte(i * 7)
	}
	require.NoError(t, s.StoreLogs([]*raft.Log{e}))
	requireEntry(t, s, e)
}

func testStable(t *testing.T, s raftStore) {
	number, err := s.GetUint64([]byte("term"))
	requireNotFound(t, err)
	require.Zero(t, number)
	value, err := s.Get([]byte("vote"))
	requireNotFound(t, err)
	require.Empty(t, value)
	require.NoError(t, s.SetUint64([]byte("term"), 1<<63+5))
	require.NoError(t, s.Set([]byte("vote"), []byte("node-2")))
	require.NoError(t, s.Set([]byte("vote"), []byte("node-3")))
	number, err = s.GetUint64([]byte("term"))
	require.NoError(t, err)
	require.Equal(t, uint64(1<<63+5), number)
	value, err = s.Get([]byte("vote"))
	require.NoError(t, err)
	require.Equal(t, "node-3", string(value))
	requireEnds(t, s, 0, 0)
}

// requireNotFound checks the error text, which raft compares.
func requireNotFound(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		err = errors.New("none")
	}
	require.Equal(t, "not found", err.Error())
}
