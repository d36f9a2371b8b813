package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/node"
)

// TestUnavailable_HintNamesTheServerThatIsSet: flightd dev would be another ledger. Limits have a remedy of their own.
func TestUnavailable_HintNamesTheServerThatIsSet(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		code string
		want string
	}{
		"nothing set": {nil, "unreachable", "flightd dev"},
		"address":     {map[string]string{"FLIGHTD_ADDR": "https://flightd.example.com"}, "unreachable", "a server runs at https://flightd.example.com, and the address from env FLIGHTD_ADDR"},
		"token":       {map[string]string{"FLIGHTD_TOKEN": testToken + "\n"}, "unreachable", "set the address of yours"},
		"rate":        {nil, "rate_limited", "flightd namespace set default --opens-per-second"},
		"open":        {nil, "too_many_open", "flightd namespace set default --max-open"},
		"quota":       {nil, "quota_exceeded", "flightd namespace set default --max-flights"},
	} {
		a := &cli.App{Terminal: cli.Terminal{Env: func(k string) string { return test.env[k] }}}
		require.NoError(t, a.ResolveSettings(newRoot(a)), name)
		_, exit, hint := a.ClassOf(&effect.Unavailable{Code: test.code, Cause: errors.New("why")})
		require.Equal(t, cli.ExitUnreachable, exit, name)
		require.Contains(t, hint, test.want, name)
		require.Equal(t, name == "nothing set", strings.Contains(hint, "flightd dev"), name)
	}
}

// TestDev_StartErrorsHaveHints: every error has a hint; those that a retry cannot remedy have ExitConfig.
func TestDev_StartErrorsHaveHints(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		code int
		hint string
	}{
		"of another user":     {&fs.PathError{Op: "open", Path: "/d/LOCK", Err: syscall.EACCES}, cli.ExitConfig, "--data"},
		"read only":           {&fs.PathError{Op: "mkdir", Path: "/d", Err: syscall.EROFS}, cli.ExitConfig, "--data"},
		"a file":              {&fs.PathError{Op: "mkdir", Path: "/d", Err: syscall.ENOTDIR}, cli.ExitConfig, "--data"},
		"full":                {&fs.PathError{Op: "write", Path: "/d/LOCK", Err: syscall.ENOSPC}, cli.ExitFailed, "free space"},
		"over its quota":      {&fs.PathError{Op: "write", Path: "/d/LOCK", Err: syscall.EDQUOT}, cli.ExitFailed, "free space"},
		"too few files":       {&fs.PathError{Op: "open", Path: "/d/ledger", Err: syscall.EMFILE}, cli.ExitFailed, "ulimit"},
		"a sick disk":         {&fs.PathError{Op: "read", Path: "/d/ledger", Err: syscall.EIO}, cli.ExitFailed, "dmesg"},
		"address in use":      {&net.OpError{Op: "listen", Err: syscall.EADDRINUSE}, cli.ExitUnreachable, "choose another address"},
		"another deployment":  {&node.WrongDeploymentError{}, cli.ExitConfig, "correct FLIGHTD_DEPLOYMENT"},
		"in use":              {fmt.Errorf("%w: /d", clusterstore.ErrLocked), cli.ExitConfig, "stop the flightd"},
		"newer":               {fmt.Errorf("%w: format 9", clusterstore.ErrNewer), cli.ExitConfig, "wrote it"},
		"etcd forgot":         {&lease.RegressedError{}, cli.ExitConfig, "--raise-lease-epoch"},
		"broken etcd":         {&node.EtcdError{Dir: "/d/etcd", Cause: errors.New("its log is gone")}, cli.ExitConfig, "move /d/etcd away"},
		"etcd on a full disk": {&node.EtcdError{Dir: "/d/etcd", Cause: syscall.ENOSPC}, cli.ExitFailed, "free space"},
		"foreign etcd":        {fmt.Errorf("%w: x", lease.ErrForeign), cli.ExitConfig, "put the newest copy of this data directory back"},
		"no ledger":           {&node.LedgerLostError{}, cli.ExitConfig, "put the newest copy of this data directory back"},
		"no address":          {&flight.InvalidError{Field: "listen", Detail: "\"7430\" is no host:port"}, cli.ExitConfig, "--listen and FLIGHTD_LISTEN take a loopback address and a port, as in 127.0.0.1:7420"},
		"not of this machine": {&flight.InvalidError{Field: "listen_metrics", Detail: "no"}, cli.ExitConfig, "FLIGHTD_LISTEN_METRICS"},
		"another's":           {fmt.Errorf("%w: x", clusterstore.ErrForeign), cli.ExitConfig, "restore"},
	} {
		code, _, hint := cli.Explain(startError(test.err, &node.Config{NoCredentials: true}))
		require.Equal(t, test.code, code, "%s: exit %d, %q", name, code, hint)
		require.Contains(t, hint, test.hint, "%s: exit %d, %q", name, code, hint)
	}
	for cause, hinted := range map[error]string{
		syscall.ENOSPC: "free space", syscall.EFBIG: "ulimit -f", syscall.EIO: "dmesg", errors.New("the disk stalls"): "start it again",
	} {
		code, message, hint := cli.Explain(nodeFailure(fmt.Errorf("the write-ahead log: %w", cause)))
		require.Equal(t, cli.ExitDied, code, "a death of %v: exit %d, %q, %q", cause, code, message, hint)
		require.Contains(t, message, cause.Error(), "a death of %v: exit %d, %q, %q", cause, code, message, hint)
		require.Contains(t, hint, hinted, "a death of %v: exit %d, %q, %q", cause, code, message, hint)
	}
}

// TestConnect_MissingSpoolDirectoryIsAConfigError: no command runs without a directory for reports.
func TestConnect_MissingSpoolDirectoryIsAConfigError(t *testing.T) {
	s, _ := startFake(t)
	t.Setenv("XDG_STATE_HOME", "")
	for name, home := range map[string]string{"no home": "", "a home that is a file": "/dev/null"} {
		t.Setenv("HOME", home)
		r := flightd(map[string]string{"FLIGHTD_ADDR": s.address}, "flights", "ls")
		require.Equal(t, cli.ExitConfig, r.code, "%s: %v", name, r)
		require.Contains(t, r.err, "XDG_STATE_HOME", "%s: %v", name, r)
	}
}

// TestHelp_SettingsTopicNamesEveryVariable of flightd dev.
func TestHelp_SettingsTopicNamesEveryVariable(t *testing.T) {
	dev := flightd(nil, "dev", "--help").out
	for _, name := range regexp.MustCompile(`FLIGHTD_[A-Z_]+`).FindAllString(dev, -1) {
		require.Contains(t, flightd(nil, "help", "settings").out, name, "flightd help settings does not know %s", name)
	}
	r := flightd(map[string]string{"FLIGHTD_LOG_LEVEL": "loud"}, "dev")
	require.Equal(t, cli.ExitConfig, r.code, "a level that the environment says wrongly: %v", r)
	require.Contains(t, r.err, "FLIGHTD_LOG_LEVEL", "a level that the environment says wrongly: %v", r)
}

// TestErrors_HaveHints: the hint is on a line of its own and names commands and flags.
func TestErrors_HaveHints(t *testing.T) {
	s, _ := startFake(t)
	s.flightd("exec", "--key", "held", "--", "sh", "-c", "exit 3")
	s.flightd("exec", "--key", "paid", "--", "true")
	for _, test := range []struct {
		name string
		args []string
		code int
		says []string
		not  string
	}{
		{"a command whose key is in doubt", []string{"exec", "--key", "held", "--", "sh", "-c", "exit 3"}, cli.ExitInDoubt,
			[]string{"nothing was run\n", "\n  resolve it:  flightd doubt resolve default/exec/held --reason WHY --happened", "\n  next time:   --not-done-exit 75 for a command that exits with 75 when nothing was done, or --recovery resend"}, "verify"},
		{"an id without its name", []string{"why", "order-42"}, cli.ExitFailed, []string{"not_found", "\n  order-42 without a name is read as exec/order-42", "charge/order-42"}, ""},
		{"an unused key", []string{"why", "charge/order-42"}, cli.ExitFailed, []string{"not_found", "\n  run flightd flights ls"}, ""},
		{"an unknown kind", []string{"tail", "--kind", "opend"}, cli.ExitUsage, []string{"input_invalid: kind: unknown event kind \"opend\"", "opened"}, "JSON pointer"},
		{"nothing to resolve", []string{"doubt", "resolve", "paid", "--fail", "--reason", "a test", "--yes"}, cli.ExitFailed, []string{"precondition_failed", "\n  run flightd why default/exec/paid"}, "("},
		{"a receipt that was meant as JSON", []string{"doubt", "resolve", "held", "--reason", "a test", "--happened", "--receipt", `{"id": ch_1}`}, cli.ExitUsage, []string{"--receipt", "invalid JSON", "@FILE"}, ""},
		{"a file that was meant by its name", []string{"doubt", "resolve", "held", "--reason", "a test", "--happened", "--receipt", program}, cli.ExitUsage, []string{"did you mean @" + program + "?"}, ""},
	} {
		r := s.flightd(test.args...)
		require.Equal(t, test.code, r.code, "%s: %v", test.name, r)
		require.False(t, test.not != "" && strings.Contains(r.err, test.not), "%s: %v", test.name, r)
		for _, want := range test.says {
			require.Contains(t, r.err, want, "%s does not say %q: %v", test.name, want, r)
		}
	}
	state := s.flight("held").State
	require.Equal(t, "in_doubt", state, "a rejected command changed the state to %s", state)
	r := s.flightd("doubt", "resolve", "held", "--did-not-happen", "--reason", "looked", "--actor", "ada", "--yes")
	require.Contains(t, r.err, "default/exec/held: ready; no attempt is open, and the next caller runs it", "resolved: %v", r)
	require.Contains(t, r.out, "it did not happen, by ada: looked", "resolved: %v", r)
	if r := s.flightd("why", "held"); !strings.Contains(r.out, "ada resolved it (it did not happen: looked)") {
		t.Errorf("the story: %v", r)
	}
}

// TestConnect_SaysThatItGaveUp: the error names the address, not the context.
func TestConnect_SaysThatItGaveUp(t *testing.T) {
	t.Parallel()
	acted := filepath.Join(t.TempDir(), "acted")
	r := flightd(map[string]string{"FLIGHTD_ADDR": "127.0.0.1:1"}, "exec", "--key", "a", "--", "touch", acted)
	require.NoFileExists(t, acted)
	require.Equal(t, cli.ExitUnreachable, r.code, "%v", r)
	require.NotContains(t, r.err, "context", "%v", r)
	require.Contains(t, r.err, "unreachable: ", "%v", r)
	require.Contains(t, r.err, "127.0.0.1:1", "%v", r)
}
