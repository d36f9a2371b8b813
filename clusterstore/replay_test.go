package clusterstore

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// A leader applies its own entries without decoding them. A replay from the log must produce the same bytes.
func TestReplayMakesTheSameRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		everything(t, s)
		want := dump(t, s)
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, fs.RemoveAll("ledger/"+stateName(1)))
		reopened, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		got := dump(t, reopened)
		require.NoError(t, reopened.Close(context.Background()))
		for _, rows := range []map[string]string{want, got} { // a start adds an entry of its own
			delete(rows, string(kindKey(metaRow)))
			delete(rows, string(kindKey(headerRow)))
		}
		require.Equal(t, want, got)
	})
}

// Raft delivers entries again whose effects are in the state. They change nothing, not even time or version.
func TestEntriesAreAppliedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		everything(t, s)
		want, header := dump(t, s), s.Header()
		var again []*raft.Log
		require.NoError(t, s.log.Scan(1, func(e *raft.Log) error {
			copied := *e
			again = append(again, &copied)
			return nil
		}))
		require.Len(t, s.fsm.ApplyBatch(again), len(again))
		require.Equal(t, header, s.Header())
		require.Equal(t, want, dump(t, s))
	})
}
