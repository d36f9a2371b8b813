package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// placeName is a file in the data directory that contains its own inode number and birth time. It is replaced by a new file
// while the ledger moves. So the file in a copy of the directory, or one that a restore put back, contradicts itself; a
// directory that was moved within its file system is not a copy. A snapshot of a whole file system or virtual machine is
// not recognised.
const placeName = "INODE"

// CopiedError is returned when the data directory was copied, moved to another file system, or restored since its last
// start. Its ledger knows nothing of the effects that happened after the copy was made.
type CopiedError struct{ Dir string }

func (e *CopiedError) Error() string {
	return fmt.Sprintf("%s was copied or restored since its last start: effects that happened after the copy was made are unknown here, and would happen again", e.Dir)
}

// checkPlace returns *CopiedError unless the directory has no ledger, or is the one in which writePlace has written last.
// In one without a ledger it writes the file. lock is the file LOCK, whose inode number is what older builds recorded.
//
// If the process dies before the directory has the file, it has no ledger either.
func checkPlace(dir string, lock *os.File) error {
	if _, err := os.Stat(filepath.Join(dir, "ledger", "IDENTITY")); errors.Is(err, fs.ErrNotExist) {
		return writePlace(dir)
	}
	path := filepath.Join(dir, placeName)
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &CopiedError{Dir: dir}
	case err != nil:
		return err
	}
	defer f.Close()
	said, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	is, err := placeOf(f)
	if err != nil {
		return err
	}
	was := strings.TrimSpace(string(said))
	if before, err := placeOf(lock); err != nil || was != is && was != strings.Fields(before)[0] {
		return errors.Join(err, &CopiedError{Dir: dir})
	}
	return nil
}

// writePlace replaces the file. If the process dies during writePlace, the old file or the new one is there, and each is
// true.
func writePlace(dir string) error {
	f, err := os.CreateTemp(dir, "tmp-"+placeName+"-")
	if err != nil {
		return err
	}
	is, err := placeOf(f)
	if err == nil {
		_, err = f.WriteString(is + "\n")
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, placeName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
