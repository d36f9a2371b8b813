package clusterstore

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// restoredFollower returns a cluster in which a node was away and got a snapshot, and that node.
func restoredFollower(t *testing.T) (c *testCluster, away int) {
	c = newTestCluster(t)
	lead := c.leader()
	away = (c.indexOf(lead) + 1) % 3
	require.NoError(t, c.stores[away].Close(context.Background()))
	c.isolate(away)
	for n := range 20 {
		openAndReport(t, lead, n)
	}
	require.NoError(t, lead.takeSnapshot())
	openAndReport(t, lead, 20)
	c.start(away)
	c.connectAll()
	c.requireSame()
	return c, away
}

// The log of a node that received a snapshot has no hole, so a reader of the feed gets one gap and then every event.
func TestReceivedSnapshotReplacesTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, away := restoredFollower(t)
		s := c.stores[away]
		first, _ := s.log.FirstIndex()
		last, _ := s.log.LastIndex()
		require.Greater(t, first, uint64(20))
		for index := first; index <= last; index++ {
			_, err := s.termAt(index)
			require.NoError(t, err, "entry %d", index)
		}
		require.Equal(t, lastEntry(c.leader()), lastEntry(s))
	})
}

// A request to install a snapshot that arrives late, after entries that follow it, rolls nothing back.
func TestLateSnapshotIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, away := restoredFollower(t)
		lead, s := c.leader(), c.stores[away]
		list, err := lead.snaps.List()
		require.NoError(t, err)
		meta, rows, err := lead.snaps.Open(list[0].ID)
		require.NoError(t, err)
		var content bytes.Buffer
		_, err = content.ReadFrom(rows)
		require.NoError(t, err)
		require.NoError(t, rows.Close())
		before, rowsBefore := lastEntry(s), dump(t, s)
		require.Greater(t, before.Index, meta.Index)
		term, _ := lead.Leading()
		from := c.transports[c.indexOf(lead)]
		late := &raft.InstallSnapshotRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(lead.cfg.NodeID), Addr: []byte(from.LocalAddr())},
			SnapshotVersion: meta.Version, Term: term, LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size}
		err = from.InstallSnapshot(raft.ServerID(s.cfg.NodeID), c.transports[away].LocalAddr(), late, new(raft.InstallSnapshotResponse), &content)
		require.ErrorContains(t, err, "late")
		require.Equal(t, before, lastEntry(s))
		require.Equal(t, rowsBefore, dump(t, s))
		openAndReport(t, lead, 100)
		c.requireSame()
	})
}

// A snapshot is read by several at once: a backup does not keep a node that joins waiting.
func TestSnapshot_SeveralReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := restoredFollower(t)
		snaps := c.leader().snaps
		list, err := snaps.List()
		require.NoError(t, err)
		var contents [2]bytes.Buffer
		var streams [2]io.ReadCloser
		for i := range streams {
			_, streams[i], err = snaps.Open(list[0].ID)
			require.NoError(t, err)
		}
		for i, rows := range streams {
			_, err = contents[i].ReadFrom(rows)
			require.NoError(t, err)
			require.NoError(t, rows.Close())
		}
		require.Equal(t, contents[0].Bytes(), contents[1].Bytes())
		require.Empty(t, snaps.open)
	})
}

// A leader that was cut off has entries that were never committed. The others go on and truncate their logs. The snapshot
// that it receives then ends before its own last entry: the node ends, and its next start removes its log.
func TestSnapshotReplacesUncommittedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		c := newTestCluster(t)
		lead := c.leader()
		old := (c.indexOf(lead) + 1) % 3
		require.NoError(t, c.stores[old].Close(ctx))
		fs := vfs.NewCrashableMem()
		_, err := vfs.Clone(c.disks[old], fs, "", "", vfs.CloneSync)
		require.NoError(t, err)
		c.disks[old] = fs
		var killed atomic.Pointer[vfs.MemFS]
		c.configure = func(i int, cfg *Config) {
			cfg.Limits.Kill = func(why error) {
				require.ErrorContains(t, why, "start the node again")
				killed.CompareAndSwap(nil, fs.CrashClone(vfs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 2))}))
			}
		}
		c.start(old)
		c.connectAll()
		cut := c.leadBy(old)
		c.requireSame()
		openAndReport(t, cut, 1)
		c.isolate(old)
		for range 30 {
			cut.raft.ApplyLog(raft.Log{Data: appendHeader(nil, stamp{now: cut.Now()})}, 0)
		}
		next := c.leader(cut)
		for lastEntry(next).Index < lastEntry(cut).Index-1 {
			propose(t, next, &flight.Tick{})
		}
		require.NoError(t, next.takeSnapshot())
		first, _ := next.log.FirstIndex()
		require.Greater(t, first, cut.LastApplied().Index+1)
		require.LessOrEqual(t, next.LastApplied().Index, lastEntry(cut).Index)

		c.connectAll()
		for killed.Load() == nil {
			c.run(time.Second)
		}
		c.isolate(old)
		require.NoError(t, cut.Close(ctx))
		c.disks[old], c.configure = killed.Load(), nil
		c.start(old)
		c.connectAll()
		openAndReport(t, c.leader(), 2)
		c.requireSame()
	})
}

// The process dies after a received snapshot is durable, and before raft removes the old log: the next start removes it.
func TestStartRemovesAReplacedLog(t *testing.T) {
	for name, c := range map[string]struct {
		found   diskState
		removed bool
	}{
		"ends before the snapshot": {diskState{Snapshot: 9, SnapshotTerm: 1}, true},
		"other entry":              {diskState{Snapshot: 4, SnapshotTerm: 7}, true},
		"same entry":               {diskState{Snapshot: 4, SnapshotTerm: 1}, false},
		"own snapshot":             {diskState{Snapshot: 9, OwnSnapshot: true}, false},
		"no snapshot":              {diskState{}, false},
	} {
		log, err := pebblelog.Open("log", pebblelog.Options(&pebble.Options{FS: vfs.NewMem()}))
		require.NoError(t, err)
		require.NoError(t, log.StoreLogs(logEntries(1, 5)))
		c.found.First, c.found.Last = 1, 5
		require.NoError(t, (&storage{log: log}).removeReplacedLog(c.found))
		last, _ := log.LastIndex()
		require.Equal(t, c.removed, last == 0, name)
		require.NoError(t, log.Close())
	}
}

// logEntries returns the entries from..to of term 1.
func logEntries(from, to uint64) (all []*raft.Log) {
	for index := from; index <= to; index++ {
		all = append(all, &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: appendHeader(nil, stamp{now: 1})})
	}
	return all
}
