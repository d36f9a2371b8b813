package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	runner "github.com/flightd/flightd/cmd/flightd/internal/exec"
	"github.com/flightd/flightd/console"
	"github.com/flightd/flightd/node"
)

// devNodes is flightd dev --nodes: a cluster on one machine, each node in a process of its own.
//
// In the data directory, cluster/node-N is the founding directory of node N, and node-N its data. The first start makes the
// founding directories.
type devNodes struct {
	*cli.App
	data  string // absolute
	host  string
	port  int // of the API of node 1; node N listens N-1 ports later
	nodes int
}

// Nodes talk to each other on ports after those of the APIs: two for each, the second one for etcd.
const devPeerPorts = 100

func newDevNodes(a *cli.App, nodes int) (*devNodes, error) {
	d, err := devNodesOf(a, a.Setting("data").Value, a.Setting("listen").Value, nodes)
	if errors.Is(err, errNoFixedPort) {
		return nil, a.InvalidSetting(a.Setting("listen"), err.Error(), "")
	}
	return d, err
}

var errNoFixedPort = errors.New("--nodes needs a host and a fixed port, and uses the ports up to 111 after it")

func devNodesOf(a *cli.App, data, listen string, nodes int) (*devNodes, error) {
	host, port, err := net.SplitHostPort(listen)
	number, portErr := strconv.Atoi(port)
	switch {
	case nodes == 0:
		return nil, cli.UsageError("--node needs --nodes, the number of nodes of the cluster")
	case nodes != 3 && nodes != 5:
		return nil, cli.UsageError("--nodes takes 3 or 5: a majority of the nodes must be able to decide while others are down")
	case err != nil || portErr != nil || number < 1 || number+devPeerPorts+2*nodes+1 > 65_535:
		return nil, errNoFixedPort
	}
	data, err = filepath.Abs(data)
	return &devNodes{App: a, data: data, host: host, port: number, nodes: nodes}, err
}

func devNodeName(n int) string { return fmt.Sprintf("node-%d", n) }

func (d *devNodes) address(n int) string { return net.JoinHostPort(d.host, strconv.Itoa(d.port+n-1)) }

func (d *devNodes) founding(n int) string { return filepath.Join(d.data, "cluster", devNodeName(n)) }

// checkNotCluster rejects flightd dev without --nodes in the data directory of a cluster.
func checkNotCluster(data string) error {
	if _, err := os.Stat(filepath.Join(data, "cluster")); err == nil {
		return &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("%s has the data of a cluster", data), Hint: "start it with flightd dev --nodes 3, or name another directory with --data"}
	}
	return nil
}

// prepare makes the founding directories at the first start.
func (d *devNodes) prepare() error {
	if _, err := os.Stat(filepath.Join(d.data, "ledger")); err == nil {
		return &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("%s has the ledger of a lone node", d.data), Hint: "flightd cluster found --from " + d.data + " makes a cluster of it, for flightd serve; or name another directory with --data"}
	}
	_, err := os.Stat(d.founding(d.nodes))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if found, err := os.ReadDir(d.data); err == nil && len(found) > 0 {
		if _, err := os.Stat(filepath.Join(d.data, "cluster")); err == nil {
			return &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("the cluster in %s does not have %d nodes", d.data, d.nodes), Hint: "start it with the number of nodes with which it was made"}
		}
	}
	var nodes []peer.Node
	for n := 1; n <= d.nodes; n++ {
		first := d.port + devPeerPorts + 2*n
		nodes = append(nodes, peer.Node{Name: devNodeName(n), Address: net.JoinHostPort(d.host, strconv.Itoa(first)), Etcd: net.JoinHostPort(d.host, strconv.Itoa(first+1))})
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return err
	}
	return peer.Found(filepath.Join(d.data, "cluster"), nodes, peer.FoundOptions{})
}

// config returns the configuration of node n.
func (d *devNodes) config(n int) node.Config {
	cfg := node.Dev(filepath.Join(d.data, devNodeName(n)), d.address(n))
	cfg.Cluster, cfg.Process.Neighbours = d.founding(n), d.nodes-1
	return cfg
}

// runOne runs node n in this process. The file flightd.pid names the process while it runs.
func (d *devNodes) runOne(ctx context.Context, n int) error {
	if n < 1 || n > d.nodes {
		return cli.UsageError("--node takes a number from 1 to %d", d.nodes)
	}
	if _, err := os.Stat(d.founding(n)); err != nil {
		return &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("%s has no node %d", d.data, n), Hint: fmt.Sprintf("start all nodes once with flightd dev --nodes %d", d.nodes)}
	}
	cfg := d.config(n)
	d.Silent = d.Env(devChildEnv) != ""
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return err
	}
	pid := filepath.Join(cfg.Data, "flightd.pid")
	if err := os.WriteFile(pid, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return err
	}
	err := runNode(ctx, d.App, cfg)
	if locked, ok := errors.AsType[*node.LockedError](err); ok {
		return errors.Join(err, os.WriteFile(pid, []byte(locked.Holder+"\n"), 0o600)) // of the node that runs
	}
	return errors.Join(err, os.RemoveAll(pid))
}

// command returns the command line that starts node n alone, without the program.
func (d *devNodes) command(n int) []string {
	return []string{"dev", "--nodes", strconv.Itoa(d.nodes), "--node", strconv.Itoa(n), "--data", d.data, "--listen", net.JoinHostPort(d.host, strconv.Itoa(d.port))}
}

// runAll runs every node in a process of its own, until ctx ends or all of them have ended. A node that ends is not started
// again.
func (d *devNodes) runAll(ctx context.Context) error {
	if err := d.prepare(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stopSignals := cli.NotifyContext(ctx, syscall.SIGHUP)
	defer stopSignals()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	var lines sync.Mutex // one line at a time
	var running sync.WaitGroup
	ready := make(chan struct{}, d.nodes)
	failed := make(chan string, d.nodes) // the nodes that have ended
	for n := 1; n <= d.nodes; n++ {
		child := exec.CommandContext(ctx, self, d.command(n)...)
		child.SysProcAttr = runner.ChildAttributes()
		child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
		child.Env = append(os.Environ(), devChildEnv+"=1", "FLIGHTD_LOG_LEVEL="+d.Setting("log_level").Value, "FLIGHTD_LOG_FORMAT="+d.Setting("log_format").Value)
		stderr, err := child.StderrPipe()
		if err != nil {
			return err
		}
		stdout, err := child.StdoutPipe()
		if err != nil {
			return err
		}
		if err := child.Start(); err != nil {
			return err
		}
		var reading sync.WaitGroup
		reading.Go(func() { d.copyLines(&lines, devNodeName(n), stderr) })
		reading.Go(func() {
			if bufio.NewScanner(stdout).Scan() { // the address, when the node is ready
				ready <- struct{}{}
			}
			_, _ = io.Copy(io.Discard, stdout)
		})
		running.Go(func() {
			reading.Wait()
			err := child.Wait()
			failed <- devNodeName(n)
			lines.Lock()
			defer lines.Unlock()
			if ctx.Err() == nil {
				d.Say("%s ended: %s; start it again with\n  flightd %s", devNodeName(n), exitText(err), strings.Join(d.command(n), " "))
			}
		})
	}
	defer running.Wait()
	for range d.nodes {
		select {
		case <-ready:
		case name := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			stop()
			return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s did not start", name), Hint: "its messages above say why"}
		}
	}
	lines.Lock()
	defer lines.Unlock()
	return d.printNodes(time.Since(began))
}

// devChildEnv is set for the processes that flightd dev --nodes starts: they print no banner.
const devChildEnv = "FLIGHTD_DEV_CHILD"

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// copyLines copies the messages of a node, each with the node's name.
func (d *devNodes) copyLines(lines *sync.Mutex, name string, from io.Reader) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		lines.Lock()
		_, _ = fmt.Fprintln(d.Err, name+"  "+scanner.Text())
		lines.Unlock()
	}
	_, _ = io.Copy(io.Discard, from)
}

// printNodes prints the addresses to standard output, so that a script can read them, and what to try to standard error.
func (d *devNodes) printNodes(took time.Duration) error {
	var all []string
	for n := 1; n <= d.nodes; n++ {
		all = append(all, "http://"+d.address(n))
		if _, err := fmt.Fprintln(d.Out, "http://"+d.address(n)); err != nil {
			return err
		}
	}
	servers := strings.Join(all, ",")
	kill := fmt.Sprintf("kill -9 $(cat %s)", filepath.Join(d.data, devNodeName(2), "flightd.pid"))
	_, err := fmt.Fprintf(d.Err, `%d nodes are ready after %s
  APIs     %s   (this machine only, no credentials)
  console  %s
  data     %s

try in another terminal:
  export FLIGHTD_ADDR=%s
  flightd exec --key first-try -- sh -c 'echo paid by $$; date'
  %s
  flightd exec --key first-try -- sh -c 'echo paid by $$; date'    # the same output; nothing is run
  flightd %s   # starts node 2 again
`, d.nodes, took.Round(time.Millisecond), strings.Join(all, " "), all[0]+console.Path+"/", d.data, servers, kill, strings.Join(d.command(2), " "))
	return err
}
