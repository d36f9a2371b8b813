package clusterstore

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// unpack writes a tar archive into a new directory.
func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		require.NoError(t, err)
		content, err := io.ReadAll(in)
		require.NoError(t, err)
		path := filepath.Join(dir, head.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
}

// A backup of a running ledger becomes a ledger with the same state, and can be repeated.
func TestBackupAndRestore(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	var keys []flight.Key
	for i := range 300 {
		keys = append(keys, openAndReport(t, s, i).Flight.Key)
	}
	for range 2 {
		var archive bytes.Buffer
		require.NoError(t, s.Backup(t.Context(), "v1", &archive))
		from := unpack(t, archive.Bytes())
		m, err := ReadBackup(from)
		require.NoError(t, err)
		require.Equal(t, s.Header().Deployment, m.Deployment)
		require.Equal(t, s.LastApplied(), EntryID{m.Index, m.Term})
		dir := filepath.Join(t.TempDir(), "ledger")
		require.NoError(t, RestoreBackup(Config{Dir: dir}, from, &m))
		restored := openStore(t, Config{Dir: dir})
		for _, key := range keys {
			f, err := restored.Flight(key.FlightID())
			require.NoError(t, err)
			require.Equal(t, flight.StateSucceeded, f.State)
		}
		require.Equal(t, s.Header().Deployment, restored.Header().Deployment)
		openAndReport(t, restored, 1000)
		require.NoError(t, restored.Close(context.Background()))
		restored = openStore(t, Config{Dir: dir}) // as any ledger
		require.NoError(t, restored.Close(context.Background()))
		keys = append(keys, openAndReport(t, s, len(keys)).Flight.Key) // the source goes on
	}
}

// The backup of a cluster, made by any of its nodes, becomes a ledger with one voter: it starts alone, also after as many entries that a
// start takes a snapshot of its own.
func TestBackupOfAClusterHasOneVoter(t *testing.T) {
	archives := make([]bytes.Buffer, 3)
	var key flight.Key
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t)
		lead := c.leader()
		f := openAndReport(t, lead, 1).Flight
		key = f.Key
		c.requireSame()
		for i, s := range c.stores {
			require.NoError(t, s.Backup(t.Context(), "v1", &archives[i]))
		}
	})
	for i := range archives {
		from := unpack(t, archives[i].Bytes())
		m, err := ReadBackup(from)
		require.NoError(t, err)
		dir := filepath.Join(t.TempDir(), "ledger")
		require.NoError(t, RestoreBackup(Config{Dir: dir}, from, &m))
		for round := range 3 {
			restored := openStore(t, Config{Dir: dir})
			voters, index, err := restored.Voters()
			require.NoError(t, err)
			require.Equal(t, []Voter{{ID: m.Node, Address: m.Node}}, voters)
			require.Equal(t, m.ConfigurationIndex, index, "the state has this configuration, too")
			f, err := restored.Flight(key.FlightID())
			require.NoError(t, err)
			require.Equal(t, flight.StateSucceeded, f.State)
			for n := range maxStartReplay {
				openAndReport(t, restored, 1000*(round+1)+n)
			}
			require.NoError(t, restored.Close(context.Background()))
		}
	}
}

// A backup with a file that is missing, cut or changed is rejected.
func TestDamagedBackupIsRejected(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	openAndReport(t, s, 1)
	var archive bytes.Buffer
	require.NoError(t, s.Backup(t.Context(), "v1", &archive))
	for _, name := range []string{backupManifestFile, backupRowsFile} {
		for what, change := range map[string]func(path string, content []byte) error{
			"missing": func(path string, _ []byte) error { return os.Remove(path) },
			"cut":     func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
			"changed": func(path string, b []byte) error {
				b[len(b)/2] ^= 1
				if name == backupManifestFile { // a changed checksum
					b = bytes.Replace(b, []byte(`"sha256": "`), []byte(`"sha256": "0`), 1)
				}
				return os.WriteFile(path, b, 0o600)
			},
		} {
			from := unpack(t, archive.Bytes())
			path := filepath.Join(from, name)
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, change(path, content))
			_, err = ReadBackup(from)
			require.ErrorIs(t, err, ErrBackup, "%s %s", name, what)
		}
	}
}
