package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// pin locks the tables of a ledger's state in memory until unpin is called. Replays are then measured as on a machine
// with enough memory, without disk reads. pin returns an error if the process may not lock that much memory.
func pin(data string) (unpin func() error, err error) {
	tables, err := filepath.Glob(filepath.Join(ledgerOf(data), "state-*", "*.sst"))
	if err != nil {
		return nil, err
	}
	var pinned [][]byte
	unpin = func() error {
		var err error
		for _, b := range pinned {
			err = errors.Join(err, syscall.Munmap(b))
		}
		return err
	}
	for _, table := range tables {
		b, err := pinFile(table)
		if errors.Is(err, os.ErrNotExist) { // compacted into another table meanwhile
			continue
		}
		if err != nil {
			return nil, errors.Join(err, unpin())
		}
		pinned = append(pinned, b)
	}
	return unpin, nil
}

func pinFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: name, Err: err}
	}
	if err := syscall.Mlock(b); err != nil {
		return nil, errors.Join(&os.PathError{Op: "mlock", Path: name, Err: err}, syscall.Munmap(b))
	}
	return b, nil
}
