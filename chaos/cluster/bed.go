//go:build linux

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/disk"
	"github.com/flightd/flightd/chaos/ledgerlog"
	"github.com/flightd/flightd/chaos/netbed"
	"github.com/flightd/flightd/chaos/report"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/lease"
)

// Ports of each node, on its host.
const (
	apiPort   = 7420
	nodesPort = 7430 // between nodes: the ledger, status and forwarded requests
	etcdPort  = 7431 // between etcd members
)

// bed is a cluster, its callers in Go, Python and TypeScript, and their provider, each on a host of its own. etcd's members are in the
// nodes, or on hosts of their own.
type bed struct {
	t         *run
	opts      *Options
	began     time.Time
	dir       string
	net       *netbed.Bed
	names     []string
	nodes     map[string]*proctest.Process
	etcd      *etcd // nil: the nodes embed its members
	token     string
	programs  [][]string                   // of callers, and of workers, in Go, Python and TypeScript: path and arguments
	calling   map[string]*proctest.Process // the callers in each language, by the name of their program
	working   []*proctest.Process          // the workers
	http      *http.Client                 // of the callers' host
	books     *provider
	disks     map[string]*disk.Disk // of the nodes
	bundle    map[string]string     // the directory with which a node starts that was replaced
	replaced  int
	damaged   string         // the node whose disk was damaged last, and that may not have noticed; "": none
	restarts  map[string]int // of nodes that ended by themselves, since the last heal
	inMemory  bool           // the disks are memory
	missing   []string       // names of the faults that this machine cannot have
	faults    []report.Fault // that were healed
	rounds    []report.Round
	counts    ledgerlog.Counts
	collected collector
	atWork    []Job         // when workers died at the end
	found     []Violation   // before the judgement
	unread    []string      // why the logs of some nodes are not in counts
	config    callersConfig // of the callers, and of workers
	random    *rand.Rand
	*History

	doneMu sync.Mutex               // guards done
	done   map[string]chan struct{} // by program and order: closed when the program has carried out the order
}

// newBed founds a cluster and starts it, with its callers. It fails where namespaces, or packet filters, are not permitted.
func newBed(t *run, opts *Options) *bed {
	b := &bed{t: t, opts: opts, names: strings.Split("abcde", "")[:opts.Nodes], nodes: make(map[string]*proctest.Process), calling: make(map[string]*proctest.Process),
		random: rand.New(rand.NewPCG(opts.Seed, 1)), done: make(map[string]chan struct{}), disks: make(map[string]*disk.Disk), bundle: make(map[string]string), restarts: make(map[string]int)}
	b.History = &History{Nodes: b.names, Session: lease.DefaultTTL}
	var err error
	b.net, err = netbed.New(append(append(slices.Clone(b.names), "callers", "provider", "balancer"), ownMembers()...)...)
	require.NoError(t, err, "run it as root, where network namespaces are permitted")
	t.Cleanup(func() { require.NoError(t, b.net.Close()) })
	b.dir, err = os.MkdirTemp(opts.Keep, "flightd-chaos-")
	require.NoError(t, err)
	if b.inMemory = opts.Loopback; !b.inMemory {
		if err := tryDisk(b.path("try")); err != nil {
			b.inMemory = true
			t.Logf("disks are memory: %v", err)
		}
	}
	if b.missing = b.lacks(); len(b.missing) > 0 && !opts.Lock {
		t.Logf("not here: %s", strings.Join(b.missing, "; "))
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; the logs and the data are in %s", opts.Seed, b.dir)
			return
		}
		require.NoError(t, os.RemoveAll(b.dir))
	})

	if opts.OwnEtcd {
		b.startEtcd()
	}
	args := []string{"cluster", "found", "--out", b.path("founding"), "--first-token-file", b.path("token")}
	for _, name := range b.names {
		args = append(args, "--node", fmt.Sprintf("%s=%s:%d", name, b.net.Host(name).Address, nodesPort))
	}
	said, err := exec.CommandContext(t.Context(), opts.Flightd, args...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	token, err := os.ReadFile(b.path("token"))
	require.NoError(t, err)
	b.token = strings.TrimSpace(string(token))
	require.NoError(t, b.addDisks())
	for _, name := range b.names {
		b.launch(name)
	}
	for _, p := range b.nodes {
		b.awaitReady(p)
	}
	b.http = &http.Client{Transport: b.transport("callers")}
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
func (b *bed) launch(name string, more ...string) {
	env := append(b.env(more...), fmt.Sprintf("FLIGHTD_PUBLIC_URL=http://%s:%d", b.host("balancer").Address, balancerPort))
	if b.etcd != nil {
		env = append(env, b.etcd.env...)
	}
	p := b.start(proctest.Spec{
		Name: "node " + name, Path: b.opts.Flightd, Log: b.path(name + ".log"), Env: env, Start: b.host(name).Start, ReadyTimeout: time.Minute,
		Args: []string{"serve", "--cluster", cmp.Or(b.bundle[name], b.path("founding/"+name)), "--data", b.data(name),
			"--listen", fmt.Sprintf("%s:%d", b.host(name).Address, apiPort)},
	})
	b.nodes[name] = p
	b.t.Cleanup(func() {
		if p.Kill(); b.t.Failed() && b.nodes[name] == p {
			b.t.Logf("node %s logged at last:\n%s", name, p.LogTail(40))
		}
	})
}

// statusAt asks a node for the state of the cluster.
func (b *bed) statusAt(name string) (state wire.Cluster, err error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Second)
	defer cancel()
	err = getJSON(ctx, b.http, b.url(name)+"/v1/cluster", b.token, &state)
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
	cmd := exec.CommandContext(ctx, b.opts.Flightd, args...)
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

// others returns the names of the other nodes.
func (b *bed) others(name string) []string {
	return slices.DeleteFunc(slices.Clone(b.names), func(other string) bool { return other == name })
}

// whole waits until every node takes part: each node describes all of them as present, as voters unless a disk is damaged, and not behind.
func (b *bed) whole(within time.Duration) (took time.Duration) {
	began := time.Now()
	b.eventually("all nodes take part", within, func() error {
		b.supervise()
		for _, name := range b.names {
			state, err := b.statusAt(name)
			if err != nil {
				return err
			}
			for _, n := range state.Nodes {
				if n.Role == wire.RoleUnreachable || n.Problem != "" && !n.DiskDamaged || n.Behind > 200 || !n.EtcdOK || len(state.Nodes) != len(b.names) {
					return fmt.Errorf("node %s says: %+v", name, state)
				}
			}
		}
		return nil
	})
	return time.Since(began)
}

func (b *bed) eventually(what string, within time.Duration, f func() error) {
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
