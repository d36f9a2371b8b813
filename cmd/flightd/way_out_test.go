package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/node"
)

// TestAServerThatRefusesIsNotTakenForNone: a hint to start flightd misleads where one is running and says why it does not.
func TestAServerThatRefusesIsNotTakenForNone(t *testing.T) {
	for code, started := range map[string]bool{"unreachable": true, "no_leader": false, "lease_unavailable": false, "draining": false} {
		_, exit, hint := classOf(&effect.Unavailable{Code: code, Cause: errors.New("why")})
		if exit != exitUnreachable || strings.Contains(hint, "flightd dev") != started || hint == "" {
			t.Errorf("%s: exit %d, %q", code, exit, hint)
		}
	}
}

// TestDevSaysTheWayOut: what trying again does not mend is a matter of the configuration, and each has a way out.
func TestDevSaysTheWayOut(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
		hint string
	}{
		"of somebody else":    {&fs.PathError{Op: "open", Path: "/d/LOCK", Err: syscall.EACCES}, exitConfig, "--data"},
		"read only":           {&fs.PathError{Op: "mkdir", Path: "/d", Err: syscall.EROFS}, exitConfig, "--data"},
		"a file":              {&fs.PathError{Op: "mkdir", Path: "/d", Err: syscall.ENOTDIR}, exitConfig, "--data"},
		"full":                {&fs.PathError{Op: "write", Path: "/d/LOCK", Err: syscall.ENOSPC}, exitFailed, "make room"},
		"over its quota":      {&fs.PathError{Op: "write", Path: "/d/LOCK", Err: syscall.EDQUOT}, exitFailed, "make room"},
		"too few files":       {&fs.PathError{Op: "open", Path: "/d/ledger", Err: syscall.EMFILE}, exitFailed, "ulimit"},
		"a sick disk":         {&fs.PathError{Op: "read", Path: "/d/ledger", Err: syscall.EIO}, exitFailed, "dmesg"},
		"in use":              {fmt.Errorf("%w: /d", clusterstore.ErrLocked), exitConfig, "stop that one"},
		"newer":               {fmt.Errorf("%w: format 9", clusterstore.ErrNewer), exitConfig, "wrote it"},
		"older":               {fmt.Errorf("%w: format 0", clusterstore.ErrOlder), exitConfig, "wrote it"},
		"etcd forgot":         {&lease.RegressedError{}, exitConfig, "--raise-lease-epoch"},
		"broken etcd":         {&node.EtcdError{Dir: "/d/etcd", Cause: errors.New("its log is gone")}, exitConfig, "move /d/etcd away"},
		"etcd on a full disk": {&node.EtcdError{Dir: "/d/etcd", Cause: syscall.ENOSPC}, exitFailed, "make room"},
		"foreign etcd":        {fmt.Errorf("%w: x", lease.ErrForeign), exitConfig, "put back the ledger"},
		"no ledger":           {&node.LedgerLostError{}, exitConfig, "put back the ledger"},
		"another's":           {fmt.Errorf("%w: x", clusterstore.ErrForeign), exitConfig, "put back"},
	} {
		code, _, hint := explain(devError(test.err))
		if code != test.code || !strings.Contains(hint, test.hint) {
			t.Errorf("%s: exit %d, %q", name, code, hint)
		}
	}
	for cause, hinted := range map[error]string{
		syscall.ENOSPC: "make room", syscall.EFBIG: "ulimit -f", syscall.EIO: "dmesg", errors.New("the disk stalls"): "start it again",
	} {
		code, message, hint := explain(deathError(fmt.Errorf("the write-ahead log: %w", cause)))
		if code != exitDied || !strings.Contains(message, cause.Error()) || !strings.Contains(hint, hinted) {
			t.Errorf("a death of %v: exit %d, %q, %q", cause, code, message, hint)
		}
	}
}

// TestNoPlaceForReportsIsAMatterOfTheConfiguration: an outcome that cannot be kept is no reason to guess.
func TestNoPlaceForReportsIsAMatterOfTheConfiguration(t *testing.T) {
	s := startServer(t)
	t.Setenv("XDG_STATE_HOME", "")
	for name, home := range map[string]string{"no home": "", "a home that is a file": "/dev/null"} {
		t.Setenv("HOME", home)
		r := cli(map[string]string{"FLIGHTD_ADDR": s.address}, "flights", "ls")
		if r.code != exitConfig || !strings.Contains(r.err, "XDG_STATE_HOME") {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// TestHelpSettingsNamesWhatTheEnvironmentDecides of flightd dev.
func TestHelpSettingsNamesWhatTheEnvironmentDecides(t *testing.T) {
	dev := cli(nil, "dev", "--help").out
	for _, name := range regexp.MustCompile(`FLIGHTD_[A-Z_]+`).FindAllString(dev, -1) {
		if !strings.Contains(cli(nil, "help", "settings").out, name) {
			t.Errorf("flightd help settings does not know %s", name)
		}
	}
	r := cli(map[string]string{"FLIGHTD_LOG_LEVEL": "loud"}, "dev")
	if r.code != exitConfig || !strings.Contains(r.err, "FLIGHTD_LOG_LEVEL") {
		t.Errorf("a level that the environment says wrongly: %v", r)
	}
}
