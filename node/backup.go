package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// RestoreBackup creates a data directory from the backup in a directory. The data directory must be missing or empty. A node
// starts on it only after AcceptRestore.
//
// If the process dies during RestoreBackup, the data directory does not exist, or is empty, and a directory beside it with
// the suffix .incomplete may be removed.
func RestoreBackup(from, data string) (*clusterstore.BackupManifest, error) {
	data = filepath.Clean(data)
	m, err := clusterstore.ReadBackup(from)
	if err != nil {
		return nil, err
	}
	if names, err := os.ReadDir(data); err == nil && len(names) > 0 {
		return nil, &flight.InvalidError{Field: "data", Detail: fmt.Sprintf("%s is not empty", data)}
	}
	incomplete := data + ".incomplete"
	if err := errors.Join(os.RemoveAll(incomplete), os.MkdirAll(incomplete, 0o700)); err != nil {
		return nil, err
	}
	if err := clusterstore.RestoreBackup(clusterstore.Config{Dir: filepath.Join(incomplete, "ledger")}, from, &m); err != nil {
		return nil, errors.Join(err, os.RemoveAll(incomplete))
	}
	if err := os.Remove(data); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &m, errors.Join(os.Rename(incomplete, data), syncDir(filepath.Dir(data)))
}
