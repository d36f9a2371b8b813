package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flightd/flightd/internal/durable"
)

// startingName is a file in etcd's directory that exists until the member has answered for the first time.
//
// If the process dies after etcd has created its log and before the first entry, the member has no voters and would
// wait for a leader for ever. A member that has never answered holds no claims, so the next start deletes its data.
const startingName = "STARTING"

// prepareEtcdDir creates etcd's directory with the file STARTING, which is synced before etcd writes its first byte. If
// the file exists from an earlier start, prepareEtcdDir deletes the data of the member.
//
// If the process dies at any point until markEtcdStarted has returned, the next start finds the file and starts over.
func prepareEtcdDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	member, mark := filepath.Join(dir, "member"), filepath.Join(dir, startingName)
	switch _, err := os.Stat(mark); {
	case err == nil:
		return os.RemoveAll(member)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, err := os.Stat(member); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(mark, []byte("etcd has not answered yet; the next start deletes its data\n"), 0o600); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// markEtcdStarted removes the file STARTING. It returns before the first claim is possible.
func markEtcdStarted(dir string) error {
	err := os.Remove(filepath.Join(dir, startingName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, durable.SyncDir(dir))
}
