package netbed

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// inNamespace is set in the environment of the program that BecomeRoot has started.
const inNamespace = "FLIGHTD_CHAOS_USER_NAMESPACE"

// BecomeRoot replaces this process by the same program with the same arguments, as root of a user namespace and a mount namespace of its own.
// Any user may ask for that where the system permits it: the program may then create networks and mount memory, and has no more rights to files and
// devices than before. BecomeRoot returns nil in the program that it has started, and ErrPermission when the system does not permit it.
func BecomeRoot() error {
	if os.Getenv(inNamespace) != "" {
		return nil
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return fmt.Errorf("%w: %w: install util-linux", ErrPermission, err)
	}
	if said, err := exec.Command(unshare, "-Urmn", "mount", "-t", "tmpfs", "tmpfs", "/tmp").CombinedOutput(); err != nil {
		return fmt.Errorf("%w without root: %w: %s: permit user namespaces: since Ubuntu 23.10 `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, "+
			"where the setting exists `sysctl kernel.unprivileged_userns_clone=1`, where it is 0 `sysctl user.max_user_namespaces=1000`, "+
			"in a container seccomp=unconfined and apparmor=unconfined; or run it as root without -loopback", ErrPermission, err, bytes.TrimSpace(said))
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(unshare, append([]string{unshare, "-Urm", "--", self}, os.Args[1:]...), append(os.Environ(), inNamespace+"=1"))
}
