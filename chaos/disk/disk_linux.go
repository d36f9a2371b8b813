package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is a file system of its own. Its methods may not be called concurrently. Those that break it return their bite: what
// shows that the fault took effect.
type Disk struct {
	Dir    string // where it is mounted; a node's data belongs in a folder of it, beside the files of this package
	keeper *exec.Cmd
	alive  io.Closer // the keeper's standard input
	probe  *exec.Cmd // a write that hangs; nil: the disk is not stalled
}

// probeTime is how long a write must hang before the disk counts as stalled.
const probeTime = time.Second

// keep waits for the end of its input, which is that of the Disk or of its process.
const keep = `cat > /dev/null; fsfreeze -u "$0" 2> /dev/null; if mountpoint -q "$0"; then umount -l "$0" || exit; fi; rm -f "$0.img"; rmdir "$0"`

// New makes a disk of this size and mounts it at dir, which is created. Its file is dir.img. Close must be called.
func New(dir string, size int64) (*Disk, error) {
	return create(dir, func(d *Disk) error {
		if err := run("mkfs.ext4", "-q", "-m", "0", d.image(), fmt.Sprintf("%dk", size>>10)); err != nil {
			return err
		}
		return d.mount()
	})
}

// NewInMemory makes a disk of memory, which needs no device, and is gone with its mount namespace. It can be filled, and its files damaged; Stall,
// PowerCut and Copy return an error, and a sync does nothing.
func NewInMemory(dir string, size int64) (*Disk, error) {
	return create(dir, func(d *Disk) error {
		return run("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dk,mode=700", size>>10), "tmpfs", d.Dir)
	})
}

// create makes a disk with what mount mounts at its directory.
func create(dir string, mount func(d *Disk) error) (*Disk, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("disk: make one: %w", err)
	}
	d := &Disk{Dir: dir, keeper: exec.Command("sh", "-c", keep, dir)}
	d.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C does not reach it
	if d.alive, err = d.keeper.StdinPipe(); err == nil {
		err = d.keeper.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("disk: start its keeper: %w", err), os.Remove(dir))
	}
	if err := mount(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close unmounts the disk and removes all of it. A process with an open file on it keeps the device until it ends.
func (d *Disk) Close() error {
	if err := errors.Join(d.alive.Close(), d.keeper.Wait(), d.endProbe()); err != nil {
		return fmt.Errorf("disk: unmount %s: %w", d.Dir, err)
	}
	return nil
}

func (d *Disk) image() string           { return d.Dir + ".img" }
func (d *Disk) path(name string) string { return filepath.Join(d.Dir, name) }

// mount makes the loop device, too; the kernel frees it when it is unmounted.
func (d *Disk) mount() error { return run("mount", "-t", "ext4", "-o", "loop", d.image(), d.Dir) }

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("disk: %s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// Fill uses up the disk but for this number of bytes; 0: until a write is refused. What a node removes later becomes free.
func (d *Disk) Fill(free int64) (bite string, err error) {
	f, err := os.OpenFile(d.path("filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return "", fmt.Errorf("disk: fill it: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, at := d.available(), int64(0)
	for step := before - free; step >= 4096; { // the file system needs some blocks itself, so a step can be refused
		if at, err = f.Seek(0, io.SeekEnd); err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, at, step)
		}
		if step /= 2; err == nil {
			step = d.available() - free
		} else if !errors.Is(err, syscall.ENOSPC) {
			return "", fmt.Errorf("disk: fill it: %w", err)
		}
	}
	bite = fmt.Sprintf("%d bytes filled, %d are free", before-d.available(), d.available())
	if free > 0 {
		return bite, nil
	}
	_, err = f.Write(make([]byte, 1<<20))
	if !errors.Is(err, syscall.ENOSPC) {
		return "", fmt.Errorf("disk: fill it: no write is refused: %s: %w", bite, err)
	}
	return bite + "; " + err.Error(), nil
}

// available returns the number of free bytes.
func (d *Disk) available() int64 {
	var s syscall.Statfs_t
	_ = syscall.Statfs(d.Dir, &s) // an error leaves 0
	return int64(s.Bavail) * s.Bsize
}

// Empty removes what Fill wrote.
func (d *Disk) Empty() error { return os.Remove(d.path("filler")) }

// Stall lets every write and sync hang until Resume, PowerCut or Close, those of Fill, too. A process that hangs cannot be killed
// before that.
func (d *Disk) Stall() (bite string, err error) {
	if err := run("fsfreeze", "-f", d.Dir); err != nil {
		return "", err
	}
	d.probe = exec.Command("dd", "if=/dev/zero", "of="+d.path("probe"), "bs=4096", "count=1", "conv=fsync", "status=none")
	if err := d.probe.Start(); err != nil {
		d.probe = nil
		return "", errors.Join(fmt.Errorf("disk: probe a write: %w", err), d.Resume())
	}
	time.Sleep(probeTime)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.probe.Process.Pid))
	if err != nil || !bytes.Contains(stat, []byte("(dd) D ")) {
		return "", errors.Join(fmt.Errorf("disk: a write does not hang: %s", stat), err, d.Resume())
	}
	return fmt.Sprintf("a write hangs, for %v by now", probeTime), nil
}

// Resume ends Stall. Writes that hung go on.
func (d *Disk) Resume() error { return errors.Join(run("fsfreeze", "-u", d.Dir), d.endProbe()) }

func (d *Disk) endProbe() (err error) {
	if d.probe != nil {
		err, d.probe = d.probe.Wait(), nil
	}
	return err
}

// PowerCut loses what was not synced. From one moment on nothing is written and every access fails; then kill must kill all
// processes that use the disk, and wait for their end; then the disk is mounted again. A stall ends, too.
//
// In the moment before it is killed, a process sees its writes fail, which it would not before a real power cut.
func (d *Disk) PowerCut(kill func()) (bite string, err error) {
	bite = "a write that hung is lost"
	if d.probe == nil {
		bite = "a write that was not synced is lost"
		if err := os.WriteFile(d.path("unsynced"), make([]byte, 4096), 0o600); err != nil {
			return "", fmt.Errorf("disk: write without a sync: %w", err)
		}
	}
	root, err := os.Open(d.Dir)
	if err != nil {
		return "", fmt.Errorf("disk: cut the power: %w", err)
	}
	const shutdown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	if err := errors.Join(unix.IoctlSetPointerInt(int(root.Fd()), shutdown, withoutFlush), root.Close()); err != nil {
		return "", fmt.Errorf("disk: cut the power: EXT4_IOC_SHUTDOWN: %w", err)
	}
	if d.probe != nil {
		_ = d.Resume() // the probe's write fails
	}
	kill()
	if err := errors.Join(run("umount", d.Dir), d.mount()); err != nil {
		return "", err
	}
	if found, err := os.ReadFile(d.path("unsynced")); err == nil && len(found) > 0 {
		return "", errors.New("disk: the power cut lost nothing")
	}
	return bite, os.RemoveAll(d.path("unsynced"))
}

// Copy copies the whole disk into a file, as of one moment. Writes of nodes that run hang meanwhile.
func (d *Disk) Copy(to string) error {
	if err := run("fsfreeze", "-f", d.Dir); err != nil {
		return err
	}
	return errors.Join(run("cp", "--sparse=always", d.image(), to), run("fsfreeze", "-u", d.Dir))
}

// Restore puts a copy of the whole disk back, as a snapshot of a machine does: no inode shows it. Nodes must be down.
func (d *Disk) Restore(from string) error {
	if err := run("umount", d.Dir); err != nil {
		return err
	}
	return errors.Join(run("cp", "--sparse=always", from, d.image()), d.mount())
}
