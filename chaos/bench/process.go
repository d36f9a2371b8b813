package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/internal/proctest"
)

// process is flightd dev as a process of its own, with clients of its nodes.
type process struct {
	*proctest.Process
	clients []*client.Client // of all nodes together, then of each node alone
}

// withStderr starts a command that shares this process's standard error.
func withStderr(cmd *exec.Cmd) error {
	cmd.Stderr = os.Stderr
	return cmd.Start()
}

// startProcess starts flightd dev with these arguments, and waits until all nodes serve callers.
func startProcess(ctx context.Context, binary, dir string, nodes int, args ...string) (*process, error) {
	var urls []string
	started, err := proctest.Start(proctest.Spec{
		Name: "flightd dev", Path: binary, Env: os.Environ(), Start: withStderr,
		Args:  append([]string{"dev", "--data", filepath.Join(dir, "data"), "--log-level", "error"}, args...),
		Ready: func(line string) bool { urls = append(urls, strings.TrimSpace(line)); return len(urls) == nodes },
	})
	if err != nil {
		return nil, err
	}
	p := &process{Process: started}
	if _, err := p.AwaitReady(ctx); err != nil {
		return nil, errors.Join(err, p.close())
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
	return p.Stop(time.Minute)
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
