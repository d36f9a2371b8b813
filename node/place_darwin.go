package node

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// placeOf returns the inode number of a file and its birth time.
func placeOf(f *os.File) (string, error) {
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return "", fmt.Errorf("fstat %s: %w", f.Name(), err)
	}
	return fmt.Sprintf("%d %d.%09d", s.Ino, s.Btim.Sec, s.Btim.Nsec), nil
}
