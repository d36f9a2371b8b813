package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// unbornName is a file in etcd's directory that says that the member there has never answered. A member that ends
// between the birth of its log and the first entry in it knows of no voter, not even of itself, and would wait for a
// leader for ever. Nothing was ever claimed in one that never answered, so it is made anew.
const unbornName = "UNBORN"

// conceive makes etcd's directory ready for a start. Wherever the process dies until born has returned, the next one
// finds the mark and begins again; it stands on the disk before the member's first byte does.
func conceive(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	member, mark := filepath.Join(dir, "member"), filepath.Join(dir, unbornName)
	switch _, err := os.Stat(mark); {
	case err == nil:
		return os.RemoveAll(member)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if _, err := os.Stat(member); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(mark, []byte("etcd has never answered here; the next start makes it anew\n"), 0o600); err != nil {
		return err
	}
	return syncDir(dir)
}

// born takes the mark away, before anybody can claim anything.
func born(dir string) error {
	err := os.Remove(filepath.Join(dir, unbornName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(dir))
}

// syncDir makes what was made or removed in a directory outlive the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
