package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
)

// trio is a cluster of three processes under flightd dev --nodes 3.
type trio struct {
	t      testing.TB
	data   string
	listen string // of node 1
	urls   []string
	parent *exec.Cmd
	log    *lockedBuffer
	state  string
}

// lockedBuffer is a buffer that several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startTrio starts a new cluster and stops it at the end of the test.
func startTrio(t testing.TB) *trio {
	t.Helper()
	c := &trio{t: t, data: filepath.Join(t.TempDir(), "data"), listen: proctest.Address(t), state: t.TempDir()}
	c.start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.log.String())
		}
		c.stop()
	})
	return c
}

func (tr *trio) args(more ...string) []string {
	return append([]string{"dev", "--nodes", "3", "--data", tr.data, "--listen", tr.listen}, more...)
}

func (tr *trio) start() {
	tr.t.Helper()
	tr.log = new(lockedBuffer)
	tr.parent = exec.Command(program, tr.args()...)
	tr.parent.Stderr = tr.log
	out, err := tr.parent.StdoutPipe()
	require.NoError(tr.t, err)
	require.NoError(tr.t, tr.parent.Start())
	lines := bufio.NewReader(out)
	tr.urls = nil
	for range 3 {
		line, err := lines.ReadString('\n')
		require.NoError(tr.t, err, "%s", tr.log)
		tr.urls = append(tr.urls, strings.TrimSpace(line))
	}
}

func (tr *trio) stop() {
	if tr.parent != nil {
		_ = tr.parent.Process.Signal(syscall.SIGINT)
		_ = tr.parent.Wait()
		tr.parent = nil
	}
}

// flightd runs a command against the given nodes, or all of them.
func (tr *trio) flightd(nodes []int, args ...string) result {
	tr.t.Helper()
	var servers []string
	for _, n := range nodes {
		servers = append(servers, tr.urls[n-1])
	}
	if len(servers) == 0 {
		servers = tr.urls
	}
	s := &server{t: tr.t, state: tr.state, address: strings.TrimPrefix(strings.Join(servers, ","), "http://")}
	return s.flightd(args...)
}

// status returns the nodes by name.
func (tr *trio) status() (state wire.Cluster, ok bool) {
	tr.t.Helper()
	r := tr.flightd(nil, "cluster", "status", "-o", "json")
	if r.code != cli.ExitOK && !strings.HasPrefix(r.out, "{") { // it ends with 1 beside a dead node
		return state, false
	}
	require.NoError(tr.t, json.Unmarshal([]byte(r.out), &state), "%s", r)
	return state, true
}

// leader waits for a leader and returns its number.
func (tr *trio) leader() (n int) {
	tr.t.Helper()
	Eventually(tr.t, "a node leads", func() bool {
		state, ok := tr.status()
		if ok && state.Leader != "" {
			_, _ = fmt.Sscanf(state.Leader, "node-%d", &n)
		}
		return n > 0
	})
	return n
}

// whole waits until all nodes answer and none is behind.
func (tr *trio) whole() {
	tr.t.Helper()
	Eventually(tr.t, "all nodes take part", func() bool {
		state, ok := tr.status()
		if !ok {
			return false
		}
		for _, n := range state.Nodes {
			if n.Role == wire.RoleUnreachable || n.Behind > 5 || !n.EtcdOK {
				return false
			}
		}
		return len(state.Nodes) == 3
	})
}

// kill sends SIGKILL to the process of a node, and waits for its end.
func (tr *trio) kill(n int) {
	tr.t.Helper()
	text, err := os.ReadFile(filepath.Join(tr.data, devNodeName(n), "flightd.pid"))
	require.NoError(tr.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(tr.t, err)
	require.NoError(tr.t, syscall.Kill(pid, syscall.SIGKILL))
	Eventually(tr.t, "the node has ended", func() bool { return syscall.Kill(pid, 0) != nil }) // and is no zombie, which may hold locks
}

// startNode starts a node that was killed.
func (tr *trio) startNode(n int) {
	tr.t.Helper()
	node := exec.Command(program, tr.args("--node", strconv.Itoa(n))...)
	node.Stderr = tr.log
	require.NoError(tr.t, node.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = node.Wait()
	}()
	tr.t.Cleanup(func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		<-ended
	})
}

// A newcomer's walk: one key is paid once at any node, also when the node that leads is killed.
func TestDevNodes_AnyOneMayDie(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	first := c.flightd([]int{1}, "exec", "--key", "walk/1", "--", "sh", "-c", "echo paid by $$")
	require.Zero(t, first.code, "%s", first)
	for n := 1; n <= 3; n++ {
		again := c.flightd([]int{n}, "exec", "--key", "walk/1", "--", "sh", "-c", "echo paid by $$")
		require.Zero(t, again.code, "%s", again)
		require.Equal(t, first.out, again.out, "node %d", n)
	}
	lead := c.leader()
	c.kill(lead)
	c.leader() // a command waits 5 s for a server, and an election may take longer under load
	paid := c.flightd(nil, "exec", "--key", "walk/2", "--", "sh", "-c", "echo paid by $$")
	require.Zero(t, paid.code, "%s", paid)
	old := c.flightd(nil, "exec", "--key", "walk/1", "--", "sh", "-c", "echo paid by $$")
	require.Equal(t, first.out, old.out, "%s", old)
	c.startNode(lead)
	c.whole()
	for n := 1; n <= 3; n++ {
		again := c.flightd([]int{n}, "exec", "--key", "walk/2", "--", "sh", "-c", "echo paid by $$")
		require.Equal(t, paid.out, again.out, "node %d: %s", n, again)
	}
}

// However the nodes of a new cluster start, and whichever of them is killed meanwhile, there is one ledger in the end, or each start
// says what to do.
func TestDevNodes_FoundsOnce(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range foundings {
		c := &trio{t: t, data: filepath.Join(t.TempDir(), "data"), listen: proctest.Address(t), state: t.TempDir(), log: new(lockedBuffer)}
		d, err := devNodesOf(&cli.App{Terminal: cli.Terminal{Env: func(string) string { return "" }}}, c.data, c.listen, 3)
		require.NoError(t, err)
		require.NoError(t, d.prepare())
		for n := 1; n <= 3; n++ {
			c.urls = append(c.urls, "http://"+d.address(n))
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(c.log.String())
			}
		})
		running := make(map[int]*exec.Cmd)
		start := func(n int) {
			node := exec.Command(program, c.args("--node", strconv.Itoa(n))...)
			node.Stderr = c.log
			require.NoError(t, node.Start())
			running[n] = node
		}
		kill := func(n int) {
			_ = running[n].Process.Kill()
			_ = running[n].Wait()
			delete(running, n)
		}
		for range random.IntN(8) {
			n := 1 + random.IntN(3)
			if running[n] == nil {
				start(n)
			} else {
				kill(n)
			}
			pause := time.NewTimer(time.Duration(random.IntN(700)) * time.Millisecond)
			<-pause.C
		}
		for n := 1; n <= 3; n++ {
			if running[n] == nil {
				start(n)
			}
		}
		Eventually(t, fmt.Sprintf("round %d: all nodes serve one ledger", round), func() bool {
			names := make(map[string]bool)
			for _, url := range c.urls {
				answer, err := http.Get(url + "/version")
				if err != nil {
					return false
				}
				var v wire.Version
				err = json.NewDecoder(answer.Body).Decode(&v)
				_ = answer.Body.Close()
				if err != nil || answer.StatusCode != http.StatusOK {
					return false
				}
				names[v.Deployment] = true
			}
			require.Len(t, names, 1, "several ledgers")
			return true
		})
		paid := c.flightd(nil, "exec", "--key", "found/1", "--", "echo", "paid")
		require.Zero(t, paid.code, "%s", paid)
		for n := range running {
			kill(n)
		}
		require.NoError(t, os.RemoveAll(c.data)) // etcd allocates its logs in advance
	}
}
