package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockName is the file in the data directory on which the running process holds a lock. The operating system releases
// the lock when the process ends; the file remains.
const lockName = "LOCK"

// LockedError is returned when another process has locked the data directory.
type LockedError struct {
	Dir    string
	Holder string // process id of the holder; "" when it cannot be read
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.Holder != "" {
		holder = "process " + e.Holder
	}
	return fmt.Sprintf("%s is in use by %s: stop that process first; one data directory serves all callers", e.Dir, holder)
}

// lockData creates the data directory and locks it for this process. Errors: *LockedError, or those of the file system.
func lockData(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Dir: dir, Holder: holder(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := errors.Join(f.Truncate(0), writePID(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func holder(f *os.File) string {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return ""
	}
	pid := strings.TrimSpace(string(b))
	if _, err := strconv.Atoi(pid); err != nil {
		return ""
	}
	return pid
}
