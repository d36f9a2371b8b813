package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flightd/flightd/internal/clock"
)

// DirectoryLostError is the error with which a node ends whose files were deleted or replaced while it ran. Receipts that
// it acknowledged since then are lost with the files.
type DirectoryLostError struct{ Path string }

func (e *DirectoryLostError) Error() string {
	return fmt.Sprintf("%s was deleted or replaced while this node was using it", e.Path)
}

// ownFiles returns the files of the data directory that exist as long as a node runs. A node keeps them open, so that the file
// system gives their inode numbers to no other file.
func (c *Config) ownFiles() []string {
	files := []string{"", lockName, "ledger", "ledger/log"}
	if !c.Etcd.enabled() {
		files = append(files, "etcd", "etcd/member")
	}
	return files
}

// watchDirectory looks every tuning.directoryEvery whether the data directory is still this node's, and calls Config.Process.Kill
// if it is not: the operating system accepts writes to files that have lost their names, and a second node could lock a
// new directory of the same name.
func watchDirectory(parts *group, cfg *Config) (err error) {
	var open []*os.File
	closeAll := func() (err error) {
		for _, f := range open {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	for _, name := range cfg.ownFiles() {
		f, err := os.Open(filepath.Join(cfg.Data, name))
		if err != nil {
			return errors.Join(err, closeAll())
		}
		open = append(open, f)
	}
	parts.start("directory watch", func(ctx context.Context) error {
		for clock.Sleep(ctx, cfg.tuning.directoryEvery) {
			for _, f := range open {
				if lost := checkStillOwn(f); lost != nil {
					cfg.Process.Kill(lost)
					return errors.Join(lost, closeAll())
				}
			}
		}
		return closeAll()
	})
	return nil
}

// checkStillOwn returns *DirectoryLostError if the path of an open file leads to no file, or to another one. Other errors
// of the file system are left to the writes.
func checkStillOwn(f *os.File) error {
	own, err := f.Stat()
	if err != nil {
		return nil
	}
	switch now, err := os.Stat(f.Name()); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(own, now):
		return &DirectoryLostError{Path: f.Name()}
	}
	return nil
}
