package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempPrefix begins the name of a file that is being written.
const tempPrefix = ".flightd-tmp-"

// replaceFile replaces a file by a new one, which only its owner can read, with one line of text about that new file. The
// file is synced, and its directory is not.
//
// If the process dies during replaceFile, the path has the old file or the new one, and a file with tempPrefix may be left
// beside it; the next start removes it from the data directory.
func replaceFile(path string, line func(*os.File) (string, error)) error {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix) // its mode is 0600
	if err != nil {
		return err
	}
	text, err := line(f)
	if err == nil {
		_, err = f.WriteString(text + "\n")
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// ofText is the line of replaceFile for a text that does not depend on the file.
func ofText(text string) func(*os.File) (string, error) {
	return func(*os.File) (string, error) { return text, nil }
}

// removeTempFiles removes what replaceFile has left in a data directory that is locked.
func removeTempFiles(dir string) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), tempPrefix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, f.Name())))
		}
	}
	return err
}
