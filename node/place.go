package node

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// placeName is a file in the data directory that says which copy of it this is: by the number that the file system gave to the file
// of the lock. A directory keeps it where it is moved or renamed, and a copy of it has another one.
const placeName = "PLACE"

// tellCopy says so where the data directory is a copy of the one that it was at its last start. That is no mistake, it may be what a
// backup is for; but two that both run know nothing of each other, and this one of nothing that the other did since.
func (n *node) tellCopy(lock *os.File) {
	here, err := placeOf(lock)
	if err != nil {
		n.cfg.Logger.Debug("which copy of the data directory this is cannot be told", "error", err)
		return
	}
	path := filepath.Join(n.cfg.Data, placeName)
	was, err := os.ReadFile(path)
	switch before := strings.TrimSpace(string(was)); {
	case err == nil && before == here:
		return
	case err == nil && before != "":
		n.cfg.Logger.Warn("this data directory was copied, or put back from a copy, since its last start: the other one must not run any more, "+
			"and what it did since is not known here", "data", n.cfg.Data)
	}
	if err := os.WriteFile(path, []byte(here+"\n"), 0o600); err != nil {
		n.cfg.Logger.Debug("which copy of the data directory this is was not written down", "error", err)
	}
}

func placeOf(f *os.File) (string, error) {
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	s, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return "", errors.ErrUnsupported
	}
	return strconv.FormatUint(s.Ino, 10), nil
}
