//go:build chaos

package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/netbed"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease"
)

var (
	seed   = flag.Uint64("seed", 0, "of everything that is random in an experiment; 0: a new one")
	faults = flag.Int("faults", 0, "number of faults of the experiment with random faults; 0: it is skipped")
	loads  = flag.Int("callers", 32, "number of callers of the load, a third of them in each language")
	pause  = flag.Duration("pause", 400*time.Millisecond, "mean pause of a caller of the load between two keys")
	kills  = flag.Int("kills", 4, "number of processes that TestKilledNodes kills")
	cutFor = flag.Duration("cut", 20*time.Second, "how long TestCutOffNode cuts a node off")
	keep   = flag.String("keep", "", "directory for the data and the logs of a failed experiment; none: a new one in the directory for temporary files")
)

// flightd is the path of the binary under test: FLIGHTD_TEST_BINARY, else it is built.
var flightd string

func TestMain(m *testing.M) {
	run, settings := runCallers, os.Getenv(callersEnv)
	if name := os.Getenv(workerEnv); name != "" {
		run = func(settings string, _ io.Reader, out io.Writer) error { return runWorker(settings, name, out) }
	}
	if settings != "" {
		if err := run(settings, os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	fmt.Println("repeat this with -seed", *seed)
	dir, err := os.MkdirTemp("", "flightd-chaos-build-")
	if flightd = os.Getenv("FLIGHTD_TEST_BINARY"); err == nil && flightd == "" {
		flightd = filepath.Join(dir, "flightd")
		build := exec.Command("go", "build", "-C", "../..", "-o", flightd, "./cmd/flightd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Ports of each node, on its host.
const (
	apiPort   = 7420
	nodesPort = 7430 // between nodes: the ledger, status and forwarded requests
	etcdPort  = 7431 // between etcd members
)

// bed is a cluster of three nodes, its callers in Go, Python and TypeScript, and their provider, each on a host of its own. etcd's
// members are in the nodes, or on hosts of their own.
type bed struct {
	t        *testing.T
	dir      string
	net      *netbed.Bed
	names    []string
	nodes    map[string]*proctest.Process
	etcd     *etcd // nil: the nodes embed its members
	token    string
	programs [][]string                   // of callers, and of workers, in Go, Python and TypeScript: path and arguments
	calling  map[string]*proctest.Process // the callers in each language, by the name of their program
	config   callersConfig                // of the callers, and of workers
	random   *rand.Rand
	*History

	doneMu sync.Mutex               // guards done
	done   map[string]chan struct{} // by program and order: closed when the program has carried out the order
}

// newBed founds a cluster and starts it, with its callers. It fails where namespaces, or packet filters, are not permitted.
func newBed(t *testing.T) *bed {
	t.Helper()
	return newBedWith(t, *ownEtcd)
}

func newBedWith(t *testing.T, ownEtcd bool) *bed {
	t.Helper()
	b := &bed{t: t, names: []string{"a", "b", "c"}, nodes: make(map[string]*proctest.Process), calling: make(map[string]*proctest.Process),
		random: rand.New(rand.NewPCG(*seed, 1)), done: make(map[string]chan struct{})}
	b.History = &History{Nodes: b.names, Session: lease.DefaultTTL}
	_, err := exec.LookPath("nft")
	require.NoError(t, err, "install nftables")
	b.net, err = netbed.New(append([]string{"a", "b", "c", "callers", "provider"}, ownMembers()...)...)
	require.NoError(t, err, "run it as root, where network namespaces are permitted")
	t.Cleanup(func() { require.NoError(t, b.net.Close()) })
	if b.dir = *keep; b.dir == "" {
		b.dir = os.TempDir()
	}
	b.dir, err = os.MkdirTemp(b.dir, "flightd-chaos-"+strings.ReplaceAll(t.Name(), "/", "-")+"-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; the logs and the data are in %s", *seed, b.dir)
			return
		}
		require.NoError(t, os.RemoveAll(b.dir))
	})

	if ownEtcd {
		b.startEtcd()
	}
	args := []string{"cluster", "found", "--out", b.path("founding"), "--first-token-file", b.path("token")}
	for _, name := range b.names {
		args = append(args, "--node", fmt.Sprintf("%s=%s:%d", name, b.net.Host(name).Address, nodesPort))
	}
	said, err := exec.CommandContext(t.Context(), flightd, args...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	token, err := os.ReadFile(b.path("token"))
	require.NoError(t, err)
	b.token = strings.TrimSpace(string(token))
	for _, name := range b.names {
		require.NoError(t, os.Mkdir(b.path("data-"+name), 0o700))
	}
	require.NoError(t, b.startNodes(b.names...))
	b.whole(30 * time.Second)
	b.startCallers()
	return b
}

func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bed) host(name string) *netbed.Host { return b.net.Host(name) }

func (b *bed) url(name string) string {
	return fmt.Sprintf("http://%s:%d", b.host(name).Address, apiPort)
}

func (b *bed) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "FLIGHTD_ALLOW_PLAIN_HTTP=true"}, more...)
}

// launch starts the process of a node and does not wait until it is ready.
func (b *bed) launch(name string) {
	b.t.Helper()
	env := b.env()
	if b.etcd != nil {
		env = b.env(b.etcd.env...)
	}
	p, err := proctest.Start(proctest.Spec{
		Name: "node " + name, Path: flightd, Log: b.path(name + ".log"), Env: env, Start: b.host(name).Start, ReadyTimeout: time.Minute,
		Args: []string{"serve", "--cluster", b.path("founding/" + name), "--data", b.path("data-" + name),
			"--listen", fmt.Sprintf("%s:%d", b.host(name).Address, apiPort)},
	})
	require.NoError(b.t, err)
	b.nodes[name] = p
	b.t.Cleanup(func() {
		if p.Kill(); b.t.Failed() && b.nodes[name] == p {
			b.t.Logf("node %s logged at last:\n%s", name, p.LogTail(40))
		}
	})
}

// startNodes starts nodes that have ended, and waits until they serve callers.
func (b *bed) startNodes(names ...string) error {
	b.t.Helper()
	for _, name := range names {
		b.launch(name)
	}
	for _, name := range names {
		if _, err := b.nodes[name].AwaitReady(b.t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// status asks the given nodes, or all, for the state of the cluster.
func (b *bed) status(nodes ...string) (state wire.Cluster, err error) {
	if len(nodes) == 0 {
		nodes = b.names
	}
	text, err := b.run("cluster", "status", "-o", "json", "--server", b.urls(nodes))
	if err == nil {
		err = json.Unmarshal([]byte(text), &state)
	}
	return state, err
}

// urls returns the addresses of nodes as clients take them.
func (b *bed) urls(nodes []string) string {
	var urls []string
	for _, name := range nodes {
		urls = append(urls, b.url(name))
	}
	return strings.Join(urls, ",")
}

// run runs flightd on the callers' host and returns its standard output.
func (b *bed) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, flightd, args...)
	cmd.Env = b.env("FLIGHTD_ADDR="+b.urls(b.names), "FLIGHTD_TOKEN="+b.token)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := b.host("callers").Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, said.String())
	}
	return out.String(), nil
}

// leader returns the name of the node that leads the ledger.
func (b *bed) leader() string {
	b.t.Helper()
	var state wire.Cluster
	b.eventually("a node leads", 20*time.Second, func() (err error) {
		if state, err = b.status(); err == nil && state.Leader == "" {
			err = fmt.Errorf("no node leads: %+v", state)
		}
		return err
	})
	return state.Leader
}

// others returns the names of the other nodes.
func (b *bed) others(name string) (names []string) {
	for _, other := range b.names {
		if other != name {
			names = append(names, other)
		}
	}
	return names
}

// whole waits until every node takes part: each node describes all of them as present, and not behind.
func (b *bed) whole(within time.Duration) (took time.Duration) {
	b.t.Helper()
	began := time.Now()
	b.eventually("all nodes take part", within, func() error {
		for _, name := range b.names {
			state, err := b.status(name)
			if err != nil {
				return err
			}
			for _, n := range state.Nodes {
				if n.Role == wire.RoleUnreachable || n.Behind > 200 || !n.EtcdOK || len(state.Nodes) != len(b.names) {
					return fmt.Errorf("node %s says: %+v", name, state)
				}
			}
		}
		return nil
	})
	return time.Since(began)
}

func (b *bed) eventually(what string, within time.Duration, f func() error) {
	b.t.Helper()
	var last error
	for began, until := time.Now(), time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
		err := f()
		if err == nil {
			if took := time.Since(began); took > 3*time.Second {
				b.t.Logf("%s only after %v; before that: %v", what, took.Round(time.Millisecond), last)
			}
			return
		}
		last = err
		if time.Now().After(until) {
			require.NoError(b.t, err, "%s within %v", what, within)
		}
	}
}

// judge asks every node for every key, and checks the history.
func (b *bed) judge() {
	b.t.Helper()
	keys := b.keys()
	began := time.Now()
	b.tell(order{Do: "replay", Name: "replay", Keys: keys})
	b.await("replay", 4*time.Minute)
	b.tell(order{Do: "close", Name: "close"})
	b.await("close", 30*time.Second)
	var err error
	b.Spooled, err = spooledFiles(b.path("spool"))
	require.NoError(b.t, err)
	results := make(map[string]int)
	for i := range b.Calls {
		results[b.Calls[i].Result]++
	}
	reopened, lost := 0, 0
	for i := range b.Readings {
		if b.Readings[i].Attempts > 1 && b.Readings[i].Node == b.names[0] {
			reopened++
		}
		lost += b.Readings[i].Lost
	}
	b.t.Logf("%d keys, %d requests at the provider, calls %v; %d keys had more than one attempt, %d attempts were lost; %d replays took %v",
		len(keys), len(b.Effects), results, reopened, lost, len(b.Readings), time.Since(began).Round(time.Millisecond))
	found := Check(b.History)
	b.explain(found)
	b.fail(found)
}

// fail reports the promises that were broken.
func (b *bed) fail(found []Violation) {
	b.t.Helper()
	for i, v := range found {
		if i == 40 {
			b.t.Logf("and %d more", len(found)-i)
			break
		}
		b.t.Error(v)
	}
}

// explain logs the history of the first keys of which a promise was broken, as the ledger has it.
func (b *bed) explain(found []Violation) {
	explained := make(map[string]bool)
	for _, v := range found {
		if len(explained) == 4 {
			return
		}
		if key, isKey := strings.CutPrefix(v.Key, "default/"); isKey && !explained[key] {
			explained[key] = true
			text, err := b.run("why", key)
			b.t.Logf("%s (%v)", text, err)
		}
	}
}
