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
func (vm *machine) build(ctx context.Context, flightd string) error {
	if err := os.MkdirAll(vm.dir, 0o755); err != nil {
		return err
	}
	if err := vm.writePayload(flightd, "deploy/systemd/flightd.service"); err != nil {
		return err
	}
	if _, err := os.Stat(vm.path(baseImage)); err == nil {
		return nil
	}
	fmt.Println("building the disk image from Debian packages, once")
	hook, root := vm.path("prepare.sh"), vm.path("root")
	if err := errors.Join(os.WriteFile(hook, []byte(prepareScript), 0o600), os.RemoveAll(root)); err != nil {
		return err
	}
	temp := vm.path(baseImage + ".tmp")
	for _, line := range [][]string{
		{"mmdebstrap", "--variant=minbase", "--format=directory", "--include=linux-image-cloud-amd64,systemd,systemd-sysv,dbus,udev,initramfs-tools",
			"--customize-hook=sh " + hook + ` "$1"`, "bookworm", root},
		{"sh", "-c", `cp "$0"/boot/vmlinuz-* "$1" && cp "$0"/boot/initrd.img-* "$2"`, root, vm.path(kernel), vm.path(initrd)},
		{"truncate", "-s", "6G", temp},
		{"mke2fs", "-q", "-F", "-t", "ext4", "-d", root, temp},
		{"mv", temp, vm.path(baseImage)},
		{"rm", "-r", root},
	} {
		if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", line[0], err, out)
		}
	}
	return nil
}

func (vm *machine) path(name string) string { return filepath.Join(vm.dir, name) }

// writePayload writes the second disk.
func (vm *machine) writePayload(binary, unit string) (err error) {
	f, err := os.Create(vm.path(payload))
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
func (vm *machine) resetDisk(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "cp", "--sparse=always", vm.path(baseImage), vm.path(disk)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w\n%s", err, out)
	}
	return nil
}

// address is the address of flightd on the host. It is the same for all boots, because the callers outlive them.
const address = "127.0.0.1:17421"

// boot starts the machine. Its disk bypasses the host's page cache, so data that its kernel had not written is lost by a
// cut, which is a kill of qemu.
func (vm *machine) boot(options string) (*proctest.Process, error) {
	vm.boots++
	return proctest.Start(proctest.Spec{Name: "qemu", Path: "qemu-system-x86_64", Env: os.Environ(), Log: vm.log(), Args: []string{
		"-accel", vm.accel, "-cpu", "max", "-smp", "2", "-m", "2048", "-nographic", "-no-reboot",
		"-kernel", vm.path(kernel), "-initrd", vm.path(initrd), "-append", "root=/dev/vda rw console=ttyS0 quiet panic=1 " + options,
		"-drive", "file=" + vm.path(disk) + ",format=raw,if=virtio,cache=none", "-drive", "file=" + vm.path(payload) + ",format=raw,if=virtio,readonly=on",
		"-netdev", "user,id=n0,hostfwd=tcp:" + address + "-:7421", "-device", "virtio-net-pci,netdev=n0"},
		Start: func(cmd *exec.Cmd) error {
			cmd.Stdout = cmd.Stderr // the console
			return cmd.Start()
		}})
}

// log is the path of the log of the newest boot.
func (vm *machine) log() string { return vm.path(fmt.Sprintf("boot-%d.log", vm.boots)) }

// powerOn starts the machine and waits until its flightd is ready.
func (vm *machine) powerOn(ctx context.Context) (*proctest.Process, error) {
	if l, err := net.Listen("tcp", address); err != nil {
		return nil, err
	} else if err := l.Close(); err != nil {
		return nil, err
	}
	m, err := vm.boot("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := proctest.AwaitHTTP(ctx, &http.Client{Timeout: 2 * time.Second}, "http://"+address+"/readyz"); err != nil {
		m.Kill()
		return nil, fmt.Errorf("%v after power-on, see %s: %w", bootTimeout, vm.log(), err)
	}
	return m, nil
}

// bootAndCut boots the machine, which resets itself the given time after flightd has created its first file.
func (vm *machine) bootAndCut(ctx context.Context, after time.Duration) error {
	m, err := vm.boot(fmt.Sprintf("cut=%.3f", after.Seconds()))
	if err != nil {
		return err
	}
	defer m.Kill()
	select {
	case <-m.Ended():
		return nil
	case <-time.After(bootTimeout):
		return fmt.Errorf("the machine did not reset itself within %v; see %s", bootTimeout, vm.log())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
