// Package durable writes files that a crash leaves whole.
//
// If the process or the machine dies while a file is written, its path has the content before or the new one, or there is no
// file as before, and a file with TempPrefix may be left beside it. After a function has returned without an error, the new
// content is there after a power cut, too.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TempPrefix begins the name of a file that is being written.
const TempPrefix = ".flightd-tmp-"

// File is a file that does not have its name yet. The caller calls Discard in the end.
type File struct {
	*os.File
	path string
}

// Begin makes the file beside path, for its owner alone.
func Begin(path string) (*File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), TempPrefix) // its mode is 0600
	if err != nil {
		return nil, err
	}
	return &File{f, path}, nil
}

// Replace writes the content, and gives the file its name. A file of this name is replaced.
func (f *File) Replace(content []byte) error { return f.publish(content, os.Rename) }

func (f *File) publish(content []byte, name func(from, to string) error) error {
	_, err := f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := name(f.Name(), f.path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(f.path))
}

// Discard removes the file if it did not get its name.
func (f *File) Discard() {
	_ = f.Close() // an error of closing was returned before
	_ = os.Remove(f.Name())
}

// Replace writes a file of this mode, and replaces the one of its name.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, os.Rename)
}

// Create writes a file of this mode. The error is fs.ErrExist if there is one of its name.
func Create(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, os.Link)
}

func write(path string, content []byte, mode fs.FileMode, name func(from, to string) error) error {
	f, err := Begin(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.publish(content, name)
}

// SyncDir makes created, renamed and removed entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
