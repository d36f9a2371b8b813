package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/flightd/flightd/internal/proctest"
)

// The files in machine.dir from which the machine boots.
const (
	baseImage = "base.img" // without flightd; built once
	disk      = "disk.img"
	payload   = "payload.tar" // the binary and its unit, read at every boot
	kernel    = "vmlinuz"
	initrd    = "initrd.img"
)

// prepareScript configures a Debian that at every boot installs binary and unit from its second disk, starts flightd,
// and forwards port 7421 to it. With cut=SECONDS on the kernel's command line it resets itself that long after flightd
// has created its first file.
const prepareScript = `set -eu
root="$1"
printf '[Match]\nName=en*\n[Network]\nDHCP=yes\n' > "$root/etc/systemd/network/en.network"
chroot "$root" systemctl enable systemd-networkd
echo '/dev/vda / ext4 rw,relatime 0 1' > "$root/etc/fstab"
cat > "$root/usr/local/sbin/load" <<'END'
#!/bin/sh
set -eu
tar xf /dev/vdb -C /run
install -m 755 /run/flightd /usr/local/bin/flightd
install -m 644 /run/flightd.service /run/systemd/system/flightd.service
systemctl daemon-reload
systemctl start --no-block flightd
case "$(cat /proc/cmdline)" in *cut=*)
  cut=$(sed 's/.*cut=\([0-9.]*\).*/\1/' /proc/cmdline)
  while [ ! -e /var/lib/private/flightd/LOCK ]; do sleep 0.01; done
  sleep "$cut"
  echo b > /proc/sysrq-trigger;;
esac
END
chmod 755 "$root/usr/local/sbin/load"
cat > "$root/etc/systemd/system/load.service" <<'END'
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/load
[Install]
WantedBy=multi-user.target
END
cat > "$root/etc/systemd/system/proxy.socket" <<'END'
[Socket]
ListenStream=7421
[Install]
WantedBy=sockets.target
END
cat > "$root/etc/systemd/system/proxy.service" <<'END'
[Service]
ExecStart=/lib/systemd/systemd-socket-proxyd 127.0.0.1:7420
END
chroot "$root" systemctl enable load.service proxy.socket
`

// build writes the payload disk and, the first time, builds the base image.
func (m *machine) build(ctx context.Context, flightd string) error {
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	if err := m.writePayload(flightd, "deploy/systemd/flightd.service"); err != nil {
		return err
	}
	if _, err := os.Stat(m.path(baseImage)); err == nil {
		return nil
	}
	fmt.Println("building the disk image from Debian packages, once")
	hook, root := m.path("prepare.sh"), m.path("root")
	if err := errors.Join(os.WriteFile(hook, []byte(prepareScript), 0o600), os.RemoveAll(root)); err != nil {
		return err
	}
	temp := m.path(baseImage + ".tmp")
	for _, line := range [][]string{
		{"mmdebstrap", "--variant=minbase", "--format=directory", "--include=linux-image-cloud-amd64,systemd,systemd-sysv,dbus,udev,initramfs-tools",
			"--customize-hook=sh " + hook + ` "$1"`, "bookworm", root},
		{"sh", "-c", `cp "$0"/boot/vmlinuz-* "$1" && cp "$0"/boot/initrd.img-* "$2"`, root, m.path(kernel), m.path(initrd)},
		{"truncate", "-s", "6G", temp},
		{"mke2fs", "-q", "-F", "-t", "ext4", "-d", root, temp},
		{"mv", temp, m.path(baseImage)},
		{"rm", "-r", root},
	} {
		if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", line[0], err, out)
		}
	}
	return nil
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// writePayload writes the second disk.
func (m *machine) writePayload(binary, unit string) (err error) {
	f, err := os.Create(m.path(payload))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	for name, from := range map[string]string{"flightd": binary, "flightd.service": unit} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if name == "flightd.service" { // the load has no token
			data = bytes.Replace(data, []byte("flightd serve\n"), []byte("flightd dev --data ${STATE_DIRECTORY} --listen 127.0.0.1:7420\n"), 1)
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// resetDisk replaces the machine's disk by a copy of the base image.
func (m *machine) resetDisk(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "cp", "--sparse=always", m.path(baseImage), m.path(disk)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}

// address is the address of flightd on the host. It is the same for all boots, because the callers outlive them.
const address = "127.0.0.1:17421"

// boot starts the machine. Its disk bypasses the host's page cache, so data that its kernel had not written is lost by a
// cut, which is a kill of qemu.
func (m *machine) boot(options string) (*proctest.Process, error) {
	m.boots++
	return proctest.Start(proctest.Spec{Name: "qemu", Path: "qemu-system-x86_64", Env: os.Environ(), Log: m.log(), Args: []string{
		"-accel", m.accel, "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot",
		"-kernel", m.path(kernel), "-initrd", m.path(initrd), "-append", "root=/dev/vda rw console=ttyS0 quiet panic=1 " + options,
		"-drive", "file=" + m.path(disk) + ",format=raw,if=virtio,cache=none", "-drive", "file=" + m.path(payload) + ",format=raw,if=virtio,readonly=on",
		"-netdev", "user,id=n0,hostfwd=tcp:" + address + "-:7421", "-device", "virtio-net-pci,netdev=n0"},
		Start: func(cmd *exec.Cmd) error {
			cmd.Stdout = cmd.Stderr // the console
			return cmd.Start()
		}})
}

// log is the path of the log of the newest boot.
func (m *machine) log() string { return m.path(fmt.Sprintf("boot-%d.log", m.boots)) }

// powerOn starts the machine and waits until its flightd is ready.
func (m *machine) powerOn(ctx context.Context) (*proctest.Process, error) {
	if l, err := net.Listen("tcp", address); err != nil {
		return nil, err
	} else if err := l.Close(); err != nil {
		return nil, err
	}
	qemu, err := m.boot("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := proctest.AwaitHTTP(ctx, &http.Client{Timeout: 2 * time.Second}, "http://"+address+"/readyz"); err != nil {
		qemu.Kill()
		return nil, fmt.Errorf("%v after power-on, see %s: %w", bootTimeout, m.log(), err)
	}
	return qemu, nil
}

// bootAndCut boots the machine, which resets itself the given time after flightd has created its first file.
func (m *machine) bootAndCut(ctx context.Context, after time.Duration) error {
	qemu, err := m.boot(fmt.Sprintf("cut=%.3f", after.Seconds()))
	if err != nil {
		return err
	}
	defer qemu.Kill()
	select {
	case <-qemu.Ended():
		return nil
	case <-time.After(bootTimeout):
		return fmt.Errorf("the machine did not reset itself within %v; see %s", bootTimeout, m.log())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
