package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flightd/flightd/internal/durable"
)

// placeName is a file in the directory of the ledger that contains its own inode number and birth time. It is replaced by a
// new file while the ledger moves. So the file in a copy of the ledger, or one that was put back, contradicts itself; a
// directory that was moved within its file system is not a copy. A snapshot of a whole file system or virtual machine is not
// recognised.
const placeName = "INODE"

// CopiedError is returned when the ledger was copied, moved to another file system, or restored since its last start. It
// knows nothing of the effects that happened after the copy was made.
type CopiedError struct {
	Dir     string
	NotOnly bool // an operator says that the directory was only moved, but its node was not stopped
}

func (e *CopiedError) Error() string {
	if e.NotOnly {
		return fmt.Sprintf("%s was not closed before it was moved: it may be a copy of a running node, and lack effects that happened since", e.Dir)
	}
	return fmt.Sprintf("%s was copied or restored since its last start: effects that happened after the copy was made are unknown here, and would happen again", e.Dir)
}

// checkPlace returns *CopiedError unless there is no ledger, or it is where writePlace has written last. Where there is no
// ledger it writes the file.
func checkPlace(dir string) error {
	own, err := isOwnPlace(filepath.Join(dir, "ledger", placeName))
	if !errors.Is(err, fs.ErrNotExist) {
		if err == nil && !own {
			err = &CopiedError{Dir: dir}
		}
		return err
	}
	if has, err := hasLedger(dir); err != nil || !has {
		return errors.Join(err, writePlace(dir))
	}
	return &CopiedError{Dir: dir}
}

// hasLedger reports whether a data directory has a ledger. The files that a start leaves if it ends before there is a ledger
// do not count.
func hasLedger(dir string) (bool, error) {
	files, err := os.ReadDir(filepath.Join(dir, "ledger"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return slices.ContainsFunc(files, func(f fs.DirEntry) bool {
		return f.Name() != lockName && f.Name() != placeName && !strings.HasPrefix(f.Name(), "tmp-") && !strings.HasPrefix(f.Name(), durable.TempPrefix)
	}), err
}

// isOwnPlace reports whether the file at path contains its own inode number and birth time.
func isOwnPlace(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	is, err := placeOf(f)
	if err != nil {
		return false, err
	}
	said, err := os.ReadFile(path)
	return strings.TrimSpace(string(said)) == is, err
}

// writePlace replaces the file. If the process dies during writePlace, the old file or the new one is there, and each is
// true.
func writePlace(dir string) error {
	ledger := filepath.Join(dir, "ledger")
	if err := os.MkdirAll(ledger, 0o700); err != nil {
		return err
	}
	f, err := durable.Begin(filepath.Join(ledger, placeName))
	if err != nil {
		return err
	}
	defer f.Discard()
	is, err := placeOf(f.File)
	if err != nil {
		return err
	}
	return f.Replace([]byte(is + "\n"))
}
