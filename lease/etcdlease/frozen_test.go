package etcdlease_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// holderSocket and holderPrefix are the environment variables of the holder process.
const (
	holderSocket = "FLIGHTD_TEST_HOLDER_SOCKET"
	holderPrefix = "FLIGHTD_TEST_HOLDER_PREFIX"
)

// TestHolderProcess is the holder process of TestHazard07_FrozenProcess: it claims a key and prints its trust on each
// line of input. In an ordinary run it returns at once.
func TestHolderProcess(t *testing.T) {
	socket := os.Getenv(holderSocket)
	if socket == "" {
		return
	}
	lessor, err := etcdlease.New(etcdlease.Config{
		Client: etcdtest.DialSocket(t, socket), Prefix: os.Getenv(holderPrefix), Deployment: leasetest.Deployment,
		Ledger: leasetest.NewLedger(),
	})
	require.NoError(t, err)
	l := claim(t, session(t, lessor, 5*time.Second), key("1"))
	in := bufio.NewScanner(os.Stdin)
	for fmt.Println("trust", int64(l.Trust())); in.Scan(); {
		fmt.Println("trust", int64(l.Trust()))
	}
	_ = lessor.Close(t.Context())
}

// TestHazard07_FrozenProcess stops a process that holds a key (SIGSTOP), lets its session expire and another node claim
// the key, and continues the process. The first trust that it then prints is zero or less.
func TestHazard07_FrozenProcess(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	b := newBackend(t, server)
	cmd := exec.Command(os.Args[0], "-test.run=^TestHolderProcess$")
	cmd.Env = append(os.Environ(), holderSocket+"="+server.Socket(), holderPrefix+"="+b.prefix)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	err = cmd.Start()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	trust := readTrust(t, lines)
	require.False(t, trust <= 0, "the holder starts with trust %v", trust)
	err = cmd.Process.Signal(syscall.SIGSTOP)
	require.NoError(t, err)
	lessor := b.open(t, server.InProcess(t), leasetest.Options{})
	heir := claim(t, session(t, lessor, lease.DefaultTTL), key("1"))
	_, err = fmt.Fprintln(in, "awake?")
	require.NoError(t, err)
	err = cmd.Process.Signal(syscall.SIGCONT)
	require.NoError(t, err)
	trust = readTrust(t, lines)
	require.LessOrEqual(t, trust, time.Duration(0), "the holder wakes up and trusts its lease for %v, while session %s has the claim", trust, heir.Session().ID)
}

func readTrust(t *testing.T, lines *bufio.Scanner) time.Duration {
	t.Helper()
	for lines.Scan() {
		if word, ok := strings.CutPrefix(lines.Text(), "trust "); ok {
			n, err := strconv.ParseInt(word, 10, 64)
			require.NoError(t, err)
			return time.Duration(n)
		}
	}
	t.Fatal("the holder ended")
	return 0
}
