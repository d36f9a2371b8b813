package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// FirstByte is how long a program in front of a pipe has for its first byte. A pipe that stays silent is often one that this process has
// inherited, with nothing to come.
const FirstByte = 200 * time.Millisecond

// UnreadInput reports whether data waits on standard input: the rest of a file, or the bytes that come in a pipe or a socket within the wait.
// It reads nothing. Input that the parent process has as well belongs to the parent, which may be a shell that reads its script or the lines
// of a loop there.
func UnreadInput(in io.Reader, wait time.Duration) bool {
	file, ok := in.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil {
		return false
	}
	if parent, err := os.Stat(fmt.Sprintf("/proc/%d/fd/0", os.Getppid())); err == nil && os.SameFile(info, parent) {
		return false
	}
	if info.Mode().IsRegular() {
		at, err := file.Seek(0, io.SeekCurrent)
		return err == nil && at < info.Size()
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return false
	}
	fd := int(file.Fd())
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(wait.Milliseconds())); n == 0 || err != nil {
		return false
	}
	fionread := uint(0x4004667f)
	if runtime.GOOS == "linux" {
		fionread = 0x541b
	}
	waiting, err := unix.IoctlGetInt(fd, fionread)
	return err == nil && waiting > 0 // at the end of a pipe, nothing waits
}
