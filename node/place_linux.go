package node

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// placeOf returns the inode number of a file and its birth time, which is 0 where the file system does not keep it.
func placeOf(f *os.File) (string, error) {
	var s unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &s); err != nil {
		return "", fmt.Errorf("statx %s: %w", f.Name(), err)
	}
	return fmt.Sprintf("%d %d.%09d", s.Ino, s.Btime.Sec, s.Btime.Nsec), nil
}
