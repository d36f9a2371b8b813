package clusterstore

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// nextLevel is a feature level that this build does not have.
const nextLevel = flight.MaxLevel + 1

// nextLevels are the levels of a later build. Its new command is SealKey.
func nextLevels() flight.Levels {
	return flight.Levels{Max: nextLevel, Required: func(c flight.Command) uint32 {
		if _, seal := c.(*flight.SealKey); seal {
			return nextLevel
		}
		return flight.MaxLevel
	}}
}

func levelOf(s *Store) uint32 {
	header := s.Header()
	return header.FeatureLevel()
}

func TestFeatureLevel_RejectsCommandsOfAHigherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cfg := memConfig(vfs.NewMem())
		cfg.Limits.levels, cfg.Logger = nextLevels(), slog.New(slog.NewTextHandler(&log, nil))
		s := openStore(t, cfg)
		last := s.Stats().Last
		seal := &flight.SealKey{Key: testKey(1)}
		_, err := s.Propose(t.Context(), seal)
		require.ErrorIs(t, err, ErrFeatureLevel)
		require.Equal(t, last, s.Stats().Last, "nothing was proposed")
		data, err := flight.Encode(seal)
		require.NoError(t, err)
		reply, err := s.propose(t.Context(), seal, data, nil) // by a leader that does not know the level
		require.NoError(t, err)
		require.Equal(t, flight.DecisionFailedPrecondition, reply.Decision)

		require.NoError(t, s.RaiseFeatureLevel(t.Context()))
		require.Equal(t, nextLevel, levelOf(s))
		require.Equal(t, nextLevel, s.fsm.published.Load().meta.Level)
		require.Equal(t, flight.DecisionAccepted, propose(t, s, seal).Decision)
		last = s.Stats().Last
		require.NoError(t, s.RaiseFeatureLevel(t.Context()))
		require.Equal(t, last, s.Stats().Last, "the level is raised once")
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("the feature level of the ledger rose")))
		require.Equal(t, []string{"raise_feature_level *   every voter reads the new level"}, auditOf(t, s)[:1])
	})
}

func TestFeatureLevel_RisesWhenAllVotersReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		levels := map[string]uint32{"node-0": nextLevel, "node-1": nextLevel, "node-2": nextLevel}
		c := &testCluster{t: t, configure: func(_ int, cfg *Config) {
			cfg.Limits.levels = nextLevels()
			cfg.Peers.Levels = func() map[string]uint32 { return levels }
		}}
		c.startAll()
		lead := c.leader()
		require.NoError(t, lead.waitForLeadership(t.Context()))
		behind := c.stores[(c.indexOf(lead)+1)%3].cfg.NodeID
		delete(levels, behind)
		require.ErrorIs(t, lead.RaiseFeatureLevel(t.Context()), ErrFeatureLevel, "%s has not answered", behind)
		levels[behind] = flight.MaxLevel
		require.NoError(t, lead.RaiseFeatureLevel(t.Context()))
		require.Equal(t, flight.MaxLevel, levelOf(lead), "%s does not read the next level", behind)
		levels[behind] = nextLevel
		require.NoError(t, lead.RaiseFeatureLevel(t.Context()))
		require.Equal(t, nextLevel, levelOf(lead))
		changeDocuments(t, lead)
		c.requireSame()
		require.Equal(t, stateHash(t, c.stores[0]), stateHash(t, c.stores[1]))
	})
}

// A build does not go back behind a level: it rejects the state, a snapshot of it that another node sends, and a backup.
func TestFeatureLevel_OlderBuildRejectsAHigherState(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, Config{Dir: dir, ClusterID: "c", Limits: Limits{levels: nextLevels()}})
	require.NoError(t, s.RaiseFeatureLevel(t.Context()))
	openAndReport(t, s, 1)
	var archive bytes.Buffer
	require.NoError(t, s.Backup(t.Context(), "v2", &archive))
	_, err := ReadBackup(unpack(t, archive.Bytes()))
	require.ErrorIs(t, err, ErrNewer)

	cfg := memConfig(vfs.NewMem())
	cfg.ClusterID = "c"
	older := openStore(t, cfg)
	_, rows, err := s.openNewSnapshot()
	require.NoError(t, err)
	require.ErrorIs(t, older.fsm.Restore(rows), ErrNewer)
	require.NoError(t, rows.Close())

	require.NoError(t, s.Close(context.Background()))
	for range 2 {
		_, err = Open(t.Context(), Config{Dir: dir})
		require.ErrorIs(t, err, ErrNewer)
	}
	s = openStore(t, Config{Dir: dir, Limits: Limits{levels: nextLevels()}})
	require.Equal(t, nextLevel, levelOf(s))
}

// newerCommands are commands as a newer build may write them.
func newerCommands(t *testing.T) map[string][]byte {
	raise, err := flight.Encode(&flight.RaiseLevel{Level: nextLevel})
	require.NoError(t, err)
	return map[string][]byte{
		"unknown command":     {flight.CodecVersion, 200, 0xa0},
		"unknown codec":       {flight.CodecVersion + 1, 1, 0xa0},
		"higher level raised": raise,
	}
}

// A build that does not read an entry stops at it, before it has applied any of it, and does not skip it.
func TestFeatureLevel_OlderBuildRejectsANewerEntry(t *testing.T) {
	for name, newer := range newerCommands(t) {
		t.Run(name, func(t *testing.T) {
			good, err := flight.Encode(&flight.SealKey{Key: testKey(7)})
			require.NoError(t, err)
			entry := appendCommand(appendCommand(appendHeader(nil, stamp{now: 1234}), good), newer)

			synctest.Test(t, func(t *testing.T) { // received by a running voter
				cfg := memConfig(vfs.NewMem())
				killed := ""
				cfg.Limits.Kill = func(why error) { killed = why.Error(); panic(why) }
				s := openStore(t, cfg)
				applied, _ := s.Applied()
				before := stateHash(t, s)
				require.Panics(t, func() { s.fsm.Apply(&raft.Log{Index: applied + 1, Term: 9, Type: raft.LogCommand, Data: entry}) })
				require.Contains(t, killed, ErrNewer.Error())
				f, err := s.Flight(testKey(7).FlightID())
				require.NoError(t, err)
				require.Nil(t, f, "the command before it is not applied either")
				s.fsm.active.hasEntries = false
				require.Equal(t, before, stateHash(t, s))
			})

			synctest.Test(t, func(t *testing.T) { // found in the log by a start
				fs := vfs.NewMem()
				s, err := Open(t.Context(), memConfig(fs))
				require.NoError(t, err)
				openAndReport(t, s, 1)
				last, _ := s.log.LastIndex()
				require.NoError(t, s.log.StoreLog(&raft.Log{Index: last + 1, Term: s.raft.CurrentTerm(), Type: raft.LogCommand, Data: entry}))
				require.NoError(t, s.Close(context.Background()))
				for range 2 {
					_, err = Open(t.Context(), memConfig(fs))
					require.ErrorIs(t, err, ErrNewer)
					require.ErrorContains(t, err, fmt.Sprint("entry ", last+1))
				}
			})
		})
	}
}
