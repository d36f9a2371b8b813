package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
)

// incompleteName is a directory in the data directory in which a restore builds the ledger.
const incompleteName = "restore.incomplete"

// RestoreBackup makes the ledger of a data directory from the backup in a directory. The data directory must be missing or
// empty. A node starts on it only after AcceptRestore.
//
// If the process dies during RestoreBackup, the data directory has no ledger, and the restore may be repeated.
func RestoreBackup(from, data string) (*clusterstore.BackupManifest, error) {
	m, err := clusterstore.ReadBackup(from)
	if err != nil {
		return nil, err
	}
	names, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, f := range names {
		if f.Name() != incompleteName && f.Name() != "lost+found" { // every new ext4 volume has the latter
			return nil, &flight.InvalidError{Field: "data", Detail: fmt.Sprintf("%s is not empty: it has %s", data, f.Name())}
		}
	}
	incomplete := filepath.Join(data, incompleteName)
	if err := errors.Join(os.RemoveAll(incomplete), os.MkdirAll(incomplete, 0o700)); err != nil {
		return nil, err
	}
	ledger := filepath.Join(incomplete, "ledger")
	if err := clusterstore.RestoreBackup(clusterstore.Config{Dir: ledger}, from, &m); err != nil {
		return nil, errors.Join(err, os.RemoveAll(incomplete))
	}
	return &m, errors.Join(os.Rename(ledger, filepath.Join(data, "ledger")), os.Remove(incomplete), durable.SyncDir(data))
}
