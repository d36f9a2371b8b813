package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// clusterKeys is the number of keys from which replays of a process are drawn.
const clusterKeys = 20_000

// process is flightd dev as a process of its own, with clients of its nodes.
type process struct {
	cmd     *exec.Cmd
	clients []*client.Client // of all nodes together, then of each node alone

	once sync.Once
	keys []flight.Key
	err  error // of storing them
}

// startProcess starts flightd dev with these arguments, and waits until all nodes serve callers.
func startProcess(ctx context.Context, binary, dir string, nodes int, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(binary, append([]string{"dev", "--data", filepath.Join(dir, "data"), "--log-level", "error"}, args...)...)}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	var urls []string
	for lines := bufio.NewReader(out); len(urls) < nodes; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, errors.Join(errors.New("flightd dev did not start"), err, p.close())
		}
		urls = append(urls, strings.TrimSpace(line))
	}
	for _, url := range append([]string{strings.Join(urls, ",")}, urls...) {
		c, err := client.Connect(ctx, url, client.WithNamespace("bench"), client.WithSpool(filepath.Join(dir, fmt.Sprint("spool-", len(p.clients)))))
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.clients = append(p.clients, c)
	}
	return p, nil
}

func (p *process) close() error {
	for _, c := range p.clients {
		_ = c.Close(context.Background())
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT)
	return p.cmd.Wait()
}

// leaderAndFollower returns a client of the node that leads, and one of a node that does not.
func (p *process) leaderAndFollower(ctx context.Context) (leader, follower *client.Client, err error) {
	state, err := p.clients[0].Cluster(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i, n := range state.Nodes {
		if n.Name == state.Leader {
			leader = p.clients[1+i]
		} else {
			follower = p.clients[1+i]
		}
	}
	if leader == nil || follower == nil {
		return nil, nil, fmt.Errorf("the cluster has no leader: %v", state)
	}
	return leader, follower, nil
}

func newKeysAt(c *client.Client) func(context.Context, uint64) error {
	run := mathrand.Uint64() // makes the keys new
	return func(ctx context.Context, n uint64) error {
		_, err := c.Do(ctx, call(flight.MustKey(fmt.Sprintf("bench/charge/run-%d/order-%d", run, n))), noEffect)
		return err
	}
}

// replaysAt returns a function that replays a random stored flight at a client's server. Its first call stores the flights.
func (p *process) replaysAt(c *client.Client) func(context.Context, uint64) error {
	return func(ctx context.Context, _ uint64) error {
		p.once.Do(func() { p.keys, p.err = storeKeys(ctx, p.clients[0], clusterKeys) })
		if p.err != nil {
			return p.err
		}
		result, err := c.Do(ctx, call(p.keys[mathrand.IntN(len(p.keys))]), noEffect)
		if err == nil && result.Source != effect.SourceReplayed {
			return fmt.Errorf("replay: the source is %s", result.Source)
		}
		return err
	}
}

// processWorkloads compares one process with three that are one cluster.
func processWorkloads(ctx context.Context, binary, dir string) (all []workload, closeAll func(), err error) {
	lone, err := startProcess(ctx, binary, filepath.Join(dir, "lone"), 1, "--listen", "127.0.0.1:7520")
	if err != nil {
		return nil, nil, err
	}
	three, err := startProcess(ctx, binary, filepath.Join(dir, "three"), 3, "--nodes", "3", "--listen", "127.0.0.1:7530")
	if err != nil {
		return nil, nil, errors.Join(err, lone.close())
	}
	closeAll = func() { _, _ = lone.close(), three.close() }
	leader, follower, err := three.leaderAndFollower(ctx)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return []workload{
		{name: "one process, new keys", note: "new", once: newKeysAt(lone.clients[0])},
		{name: "three processes, new keys", note: "new", once: newKeysAt(three.clients[0])},
		{name: "three processes, new keys at the leader", note: "new", once: newKeysAt(leader)},
		{name: "three processes, new keys at a follower", note: "new", once: newKeysAt(follower)},
		{name: "one process, replays", once: lone.replaysAt(lone.clients[0])},
		{name: "three processes, replays at a follower", once: three.replaysAt(follower)},
	}, closeAll, nil
}
