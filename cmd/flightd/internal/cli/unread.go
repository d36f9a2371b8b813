package cli

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// FirstByte is how long UnreadInput waits for the first byte in a pipe. A pipe that stays empty is often just inherited, and nobody
// writes to it.
const FirstByte = 200 * time.Millisecond

// UnreadInput reports whether standard input has data: the rest of a file, or bytes that arrive in a pipe or a socket within wait. It reads
// nothing. It returns false if the parent process has the same standard input, because the parent may be a shell that reads its script or
// the lines of a loop from it.
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
	return err == nil && waiting > 0 // 0 at the end of a pipe
}
