package disk

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newDisk(t *testing.T) *Disk {
	t.Helper()
	d, err := New(filepath.Join(t.TempDir(), "disk"), 256<<20)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.True(t, gone(d.Dir))
	})
	return d
}

func gone(dir string) bool {
	left, err := exec.Command("sh", "-c", "losetup -a; mount; ls -d "+dir+"*").Output()
	return err != nil && !strings.Contains(string(left), dir+".img") && !strings.Contains(string(left), dir+" ")
}

func write(path string, bytes int) error { return os.WriteFile(path, make([]byte, bytes), 0o600) }

func TestFill(t *testing.T) {
	d := newDisk(t)
	_, err := d.Fill(300 << 10)
	require.NoError(t, err)
	require.NoError(t, write(d.path("small"), 64<<10))
	require.ErrorIs(t, write(d.path("large"), 1<<20), syscall.ENOSPC)
	bite, err := d.Fill(0)
	require.NoError(t, err)
	require.Contains(t, bite, "no space left on device")
	require.ErrorIs(t, write(d.path("other"), 8<<10), syscall.ENOSPC)
	require.NoError(t, d.Empty())
	require.NoError(t, write(d.path("large"), 1<<20))
}

func TestStall(t *testing.T) {
	d := newDisk(t)
	bite, err := d.Stall()
	require.NoError(t, err)
	require.Contains(t, bite, "a write hangs")
	require.NoError(t, d.Resume(), "the write that hung goes on")
	require.FileExists(t, d.path("probe"))
	_, err = d.Stall() // and Close ends it
	require.NoError(t, err)
}

// A power cut keeps what was synced, and loses a file and the end of a file that were not.
func TestPowerCut(t *testing.T) {
	d := newDisk(t)
	_, err := d.Stall()
	require.NoError(t, err)
	require.NoError(t, d.Resume())
	for _, stalled := range []bool{false, true} {
		f, err := os.Create(d.path("kept"))
		require.NoError(t, err)
		_, err = f.WriteString("synced")
		require.NoError(t, err)
		require.NoError(t, run("sync", f.Name(), d.Dir))
		if stalled { // which syncs everything
			_, err = d.Stall()
		} else {
			require.NoError(t, write(d.path("lost"), 9))
			_, err = f.WriteString(" unsynced")
		}
		require.NoError(t, err)
		_, err = d.PowerCut(func() {
			_, err := f.WriteString("later")
			require.ErrorIs(t, err, syscall.EIO)
			require.ErrorIs(t, f.Sync(), syscall.EIO)
			_ = f.Close()
		})
		require.NoError(t, err)
		kept, err := os.ReadFile(d.path("kept"))
		require.NoError(t, err)
		require.Equal(t, "synced", string(kept))
		require.NoFileExists(t, d.path("lost"))
	}
}

// Each damage changes what it says, and a copy of the disk undoes it.
func TestDamage(t *testing.T) {
	d := newDisk(t)
	data, whole, random := d.path("data"), filepath.Join(t.TempDir(), "copy"), rand.New(rand.NewPCG(1, 1))
	older, newer := d.path("data/ledger/log/000002.log"), d.path("data/ledger/log/000010.log")
	_, err := FlipBit(data, RaftLog, random)
	require.ErrorContains(t, err, "no file")
	require.NoError(t, os.MkdirAll(filepath.Dir(older), 0o700))
	require.NoError(t, os.WriteFile(older, []byte("old"), 0o600))
	require.NoError(t, os.WriteFile(newer, []byte("newer\x00\x00"), 0o600))
	require.NoError(t, d.Copy(whole))
	logs := func() string {
		first, err := os.ReadFile(older)
		require.NoError(t, err)
		last, err := os.ReadFile(newer)
		require.NoError(t, err)
		return string(first) + string(last)
	}
	_, err = TearTail(data, RaftLog, 3, random)
	require.NoError(t, err)
	require.Regexp(t, `^oldne(we?)?$`, logs())
	require.NoError(t, d.Restore(whole))
	_, err = FlipBit(data, RaftLog, random)
	require.NoError(t, err)
	ones := 0
	for i, b := range []byte(logs()) {
		ones += bits.OnesCount8(b ^ "oldnewer\x00\x00"[i])
	}
	require.Equal(t, 1, ones)
	_, err = Wipe(data)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Dir(older))
	require.NoError(t, d.Restore(whole))
	require.Equal(t, "oldnewer\x00\x00", logs())
}

// A disk goes with the process that made it.
func TestKilledProcessLeavesNothing(t *testing.T) {
	const env = "FLIGHTD_TEST_DISK"
	if dir := os.Getenv(env); dir != "" {
		d, err := New(dir, 64<<20)
		require.NoError(t, err)
		_, err = d.Stall()
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	dir := filepath.Join(t.TempDir(), "disk")
	child := exec.Command(os.Args[0], "-test.run", t.Name())
	child.Env = append(os.Environ(), env+"="+dir)
	require.Error(t, child.Run())
	require.Eventually(t, func() bool { return gone(dir) }, time.Minute, 50*time.Millisecond)
}
