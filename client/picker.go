package client

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
)

// tryOrder returns the servers in the order in which a request tries them: the one to probe (-1: none), the one that is the
// leader, the others whose last answer named their node, and the rest; in each group in turn from the preferred one on.
// nodes has the node of each server, "" if it is not known.
func tryOrder(preferred int, nodes []string, leader string, probe int) []int {
	rank := func(server int) int {
		switch node := nodes[server]; {
		case server == probe:
			return 0
		case node == "":
			return 3
		case node == leader:
			return 1
		}
		return 2
	}
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = (preferred + i) % len(nodes)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank(a), rank(b)) })
	return order
}

const (
	// minProbePause is the time between two probes. It doubles with each probe that fails.
	minProbePause = time.Second
	// maxProbePause is longer than a try takes, so that one probe at a time is in flight.
	maxProbePause = 90 * time.Second
)

// picker remembers which node answers at which server's address, so that requests go to the leader of the ledger.
//
// Any node takes every request, but passes most of them on to the leader. If no known server is the leader, one request a
// second tries another server first: a probe.
type picker struct {
	mu         sync.Mutex
	nodes      []string // by server: the node that its last answer named; "" after a failure
	leader     string   // named by the newest answer; "": none has named it
	preferred  int      // the server to try first while the leader is not known
	lastProbe  int      // the server that was probed last
	probeAfter time.Time
	probePause time.Duration // 0 is minProbePause
}

var onlyServer = []int{0}

// pick returns the order in which a request tries the n servers, and the first of them if it is a probe, else -1. A probe
// counts as in flight until answered or failed is called for its server.
func (p *picker) pick(n int, mayProbe bool) (order []int, probe int) {
	if n == 1 {
		return onlyServer, -1
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.nodes) != n {
		p.nodes = make([]string, n)
	}
	probe = -1
	if now := time.Now(); mayProbe && p.leader != "" && !slices.Contains(p.nodes, p.leader) && !now.Before(p.probeAfter) {
		for i := range n {
			server := (p.lastProbe + 1 + i) % n
			if p.nodes[server] == "" && server != p.preferred {
				probe, p.lastProbe, p.probeAfter = server, server, now.Add(maxProbePause)
				break
			}
		}
	}
	return tryOrder(p.preferred, p.nodes, p.leader, probe), probe
}

// answered notes that flightd has answered at that server.
func (p *picker) answered(server, probe int, header http.Header) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.nodes) == 0 {
		return // the only server
	}
	node, leader := header.Get(wire.HeaderNode), header.Get(wire.HeaderLeader)
	p.nodes[server] = node
	if leader != "" {
		p.leader = leader
	}
	if node != "" && node == leader {
		p.preferred = server
	}
	if server == probe {
		p.probePause, p.probeAfter = minProbePause, time.Now().Add(minProbePause)
	}
}

// failed notes that a try at that server had no answer of a node that can serve requests.
func (p *picker) failed(server, probe int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.nodes) == 0 {
		return
	}
	p.nodes[server] = ""
	if p.preferred == server {
		p.preferred = (server + 1) % len(p.nodes)
	}
	pause := max(p.probePause, minProbePause)
	after := time.Now().Add(pause) // the failed server may be the leader: it is not probed at once
	if server == probe {
		p.probePause, p.probeAfter = min(2*pause, maxProbePause), after
	} else if after.After(p.probeAfter) {
		p.probeAfter = after
	}
}
