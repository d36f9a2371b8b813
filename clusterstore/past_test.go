package clusterstore

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// A log holds a record only as the same entry, or in a snapshot beyond it.
func TestPastHolds(t *testing.T) {
	// snapshot at entry 10 of term 2; log: 8 to 15, of term 2 up to 12, then of term 4
	past := Past{Last: EntryID{15, 4}, snapshot: EntryID{10, 2}, termAt: func(index uint64) (uint64, error) {
		switch {
		case index < 8 || index > 15:
			return 0, raft.ErrLogNotFound
		case index <= 12:
			return 2, nil
		}
		return 4, nil
	}}
	for record, want := range map[EntryID]bool{
		{}: true, {3, 1}: true, {7, 2}: true, {7, 3}: false, {10, 2}: true, {10, 1}: false, {12, 2}: true, {13, 4}: true,
		{13, 2}: false, {13, 3}: false, {15, 4}: true, {15, 3}: false, {16, 4}: false,
	} {
		got, err := past.Holds(record)
		require.NoError(t, err)
		require.Equal(t, want, got, "%+v", record)
	}
	unreadable := errors.New("bad block")
	past.termAt = func(uint64) (uint64, error) { return 0, unreadable }
	_, err := past.Holds(EntryID{9, 2})
	require.ErrorIs(t, err, unreadable)
}

// The past is what the disk held at the start: the deployment also if only the log has it, and no entry of this start. A
// rejected start changes nothing.
func TestCheckPastRunsBeforeRaft(t *testing.T) {
	fs := vfs.NewCrashableMem()
	var pasts []Past
	rejected := errors.New("rejected")
	var answer error
	open := func() (*Store, error) {
		return Open(t.Context(), Config{Dir: "ledger", FS: fs, CheckPast: func(_ context.Context, p Past) error {
			pasts = append(pasts, p)
			return answer
		}})
	}
	s, err := open()
	require.NoError(t, err)
	require.Equal(t, EntryID{}, pasts[0].Last)
	require.Empty(t, pasts[0].Deployment)
	require.True(t, pasts[0].Closed)
	killed := fs.CrashClone(vfs.CrashCloneCfg{}) // before the first flush
	deployment, last := s.Header().Deployment, s.LastApplied()
	require.NoError(t, s.Close(context.Background()))
	for _, disk := range []*vfs.MemFS{fs, killed} {
		fs, pasts, answer = disk, nil, rejected
		for range 3 {
			_, err := open()
			require.ErrorIs(t, err, rejected)
		}
		answer = nil
		s, err := open()
		require.NoError(t, err)
		require.NoError(t, s.Close(context.Background()))
		for i, p := range pasts {
			require.Equal(t, deployment, p.Deployment, i)
			require.Equal(t, last, p.Last, i)
			require.Equal(t, disk != killed || i > 0, p.Closed, "start %d", i)
		}
	}
}
