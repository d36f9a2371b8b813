package node

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// inodeName is a file in the data directory with the inode number of the lock file. A moved directory keeps that
// number; a copy has another one.
const inodeName = "INODE"

// warnIfCopied logs a warning if the data directory was copied since its last start. Starting a copy is legitimate, as
// after a restore from a backup. The danger: two running copies do not know of each other's effects.
func (n *node) warnIfCopied(lock *os.File) {
	here, err := inodeOf(lock)
	if err != nil {
		n.cfg.Logger.Debug("detecting a copied data directory failed", "error", err)
		return
	}
	path := filepath.Join(n.cfg.Data, inodeName)
	was, err := os.ReadFile(path)
	switch before := strings.TrimSpace(string(was)); {
	case err == nil && before == here:
		return
	case err == nil && before != "":
		n.cfg.Logger.Warn("this data directory was copied, or restored from a copy, since its last start: do not run the original any more; "+
			"effects that it recorded after the copy are unknown here", "data", n.cfg.Data)
	}
	if err := os.WriteFile(path, []byte(here+"\n"), 0o600); err != nil {
		n.cfg.Logger.Debug("writing the inode of the data directory failed", "error", err)
	}
}

func inodeOf(f *os.File) (string, error) {
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
