package clusterstore

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flightd/flightd/clusterstore/pebblelog"
)

const (
	firstVerify = time.Minute // after the start
	verifyRate  = 8 << 20     // bytes a second
	verifyChunk = 1 << 20     // bytes that are read without a pause
)

// verifier reads the tables of a node and compares the checksums of their blocks. Without it a damaged block that no caller
// asks for would be found when it is needed most: by a snapshot, or for a node that has lost its own copy.
type verifier struct {
	*storage
	read int64 // bytes
}

// run verifies the tables until the store closes: it begins a minute after the start, and then every Limits.VerifyEvery.
func (v *verifier) run() {
	tick := time.NewTicker(min(firstVerify, v.cfg.Limits.VerifyEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(v.cfg.Limits.VerifyEvery)
			v.verifyTables()
		case <-v.closing:
			return
		}
	}
}

// verifyTables reads the tables of the log, of the state, and of the snapshot if this node took it, and compares the
// checksums of their blocks. The order is random, so that a node that is often restarted verifies each of them some time.
// It does not read the write-ahead logs, which a start reads.
func (v *verifier) verifyTables() {
	var all []table
	for _, source := range []struct {
		tables  func() ([]string, error)
		options *pebble.Options
	}{
		{v.log.Tables, pebblelog.Options(v.pebbleOptions())},
		{v.state.tables, stateOptions(v.pebbleOptions())},
		{v.snaps.tables, stateOptions(v.pebbleOptions())},
	} {
		paths, err := source.tables()
		if err != nil {
			v.cfg.Logger.Warn("clusterstore: tables cannot be listed, and are not verified", "error", err)
		}
		for _, path := range paths {
			all = append(all, table{path, source.options, source.tables})
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, t := range all {
		if errors.Is(v.verify(t), ErrClosed) {
			return
		}
	}
}

// table is the file of a table, and the options of its database. listed returns the paths of the tables that the database has now; of a snapshot,
// the files in its directory.
type table struct {
	path    string
	options *pebble.Options
	listed  func() ([]string, error)
}

// verify reads a table, and says so if it is damaged, or lost. It returns why the table is not known to be whole.
func (v *verifier) verify(t table) error {
	err := pebblelog.VerifyTable(v.cfg.FS, t.path, t.options, v.pace)
	if errors.Is(err, syscall.EIO) { // a bad sector, or a moment of a disk in a network
		err = pebblelog.VerifyTable(v.cfg.FS, t.path, t.options, v.pace)
	}
	if errors.Is(err, fs.ErrNotExist) {
		now, listErr := t.listed()
		switch {
		case listErr != nil:
			err = listErr
		case !slices.Contains(now, t.path):
			return nil // a compaction or a newer snapshot has removed it
		}
	}
	switch {
	case err == nil, errors.Is(err, ErrClosed):
	case isCorruption(err), errors.Is(err, syscall.EIO), errors.Is(err, fs.ErrNotExist):
		v.onCorruption(pebble.DataCorruptionInfo{Path: t.path, Details: err})
	default:
		v.cfg.Logger.Warn("clusterstore: a table cannot be verified", "file", t.path, "error", err)
	}
	return err
}

// pace waits after each verifyChunk, so that reads of tables stay below verifyRate. ErrClosed when the store closes.
func (v *verifier) pace(bytes int) error {
	before := v.read
	v.read += int64(bytes)
	chunks := v.read/verifyChunk - before/verifyChunk
	if chunks == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(chunks) * verifyChunk * time.Second / verifyRate):
		return nil
	case <-v.closing:
		return ErrClosed
	}
}

// tables returns the paths of the tables of the state.
func (s *state) tables() ([]string, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return nil, ErrClosed
	}
	return s.db.Tables()
}

// tables returns the paths of the tables of the newest snapshot: none if another node sent it.
func (s *snapshots) tables() (paths []string, err error) {
	newest, err := s.List()
	if err != nil || len(newest) == 0 || !s.isLocal(newest[0].ID) {
		return nil, err
	}
	names, err := s.cfg.FS.List(s.path(newest[0].ID, checkpointDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a newer one has replaced it
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			paths = append(paths, s.path(newest[0].ID, checkpointDir, name))
		}
	}
	return paths, err
}
