package executor_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

type (
	transcript = executortest.Transcript
	provider   = executortest.Provider
)

// node is one flightd of a cluster.
type node struct {
	*flightdtest.Flightd
	name       string
	transcript *transcript
	testEnd    chan struct{} // closed at the end of the test: blocked calls of a dead node return then
	ledger     *recordingLedger
}

// recordingLedger is a node's access to the ledger. It records commands and replies, and blocks when its node is dead.
type recordingLedger struct {
	*flightdtest.Ledger
	node *node
	mu   sync.Mutex
	dead bool
}

var errDead = errors.New("this node is dead")

// blockIfDead blocks the calls of a dead node until the end of the test.
func (l *recordingLedger) blockIfDead() error {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if !dead {
		return nil
	}
	<-l.node.testEnd
	return errDead
}

func (l *recordingLedger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	if err := l.blockIfDead(); err != nil {
		return flight.Reply{}, err
	}
	reply, err := l.Ledger.Propose(ctx, c)
	l.node.logCommand(c, reply, err)
	return reply, err
}

func (l *recordingLedger) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	if err := l.blockIfDead(); err != nil {
		return flight.Reply{}, err
	}
	reply, err := l.Ledger.Report(ctx, r)
	l.node.logCommand(r, reply, err)
	return reply, err
}

func (l *recordingLedger) Flight(id flight.ID) (*flight.Flight, error) {
	if err := l.blockIfDead(); err != nil {
		return nil, err
	}
	return l.Ledger.Flight(id)
}

func (l *recordingLedger) Overdue(limit int) []flight.ID {
	if l.blockIfDead() != nil {
		return nil
	}
	return l.Ledger.Overdue(limit)
}

// logCommand records a command and its reply.
func (n *node) logCommand(c flight.Command, reply flight.Reply, err error) {
	what := ""
	switch c := c.(type) {
	case *flight.Open:
		what = "open"
	case *flight.Report:
		what = fmt.Sprintf("report %v of attempt %d", c.Outcome, c.Token.Number)
	case *flight.Abandon:
		what = "abandon"
	case *flight.EndSession:
		n.transcript.Add("%s: the session has ended: %v", n.name, reply.Decision)
		return
	case *flight.ReportFinding:
		what = "finding " + c.Finding.String()
	default:
		what = strings.TrimPrefix(fmt.Sprintf("%T", c), "*flight.")
	}
	switch {
	case err != nil:
		n.transcript.Add("%s: %s: %v", n.name, what, err)
	case reply.Decision == flight.DecisionProceed:
		n.transcript.Add("%s: %s: proceed with attempt %d", n.name, what, reply.Token.Number)
	default:
		n.transcript.Add("%s: %s: %v, %v", n.name, what, reply.Decision, reply.Flight.State)
	}
}

// cluster is the ledger and the etcd that nodes share.
type cluster struct {
	t          *testing.T
	transcript *transcript
	ledger     *flightdtest.Ledger
	etcd       *leasetest.Etcd
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t: t, transcript: new(transcript), ledger: flightdtest.NewLedger(), etcd: leasetest.NewEtcd()}
}

// node starts a node.
func (c *cluster) node(name string, o flightdtest.Options) *node {
	n := &node{name: name, transcript: c.transcript, testEnd: make(chan struct{})}
	n.ledger = &recordingLedger{Ledger: c.ledger, node: n}
	o.Ledger = c.ledger
	o.Leases = leasetest.Open(c.t, c.etcd, nil, leasetest.Options{
		Ledger: c.ledger,
	})
	configure := o.Configure
	o.Configure = func(cfg *executor.Config) {
		cfg.Ledger, cfg.Reader = n.ledger, n.ledger
		if configure != nil {
			configure(cfg)
		}
	}
	n.Flightd = flightdtest.Open(c.t, o)
	c.t.Cleanup(func() { close(n.testEnd) })
	return n
}

// crashingNode starts a node that dies when it first passes the named point.
func (c *cluster) crashingNode(name, point string, o flightdtest.Options) *node {
	var n *node
	o.Configure = func(cfg *executor.Config) {
		cfg.Crash = func(p string) {
			if p == point {
				n.die(p)
			}
		}
	}
	n = c.node(name, o)
	return n
}

// die is kill -9 as other nodes see it: the node's requests no longer reach etcd or the ledger. It returns at the end
// of the test.
func (n *node) die(where string) {
	n.ledger.mu.Lock()
	first := !n.ledger.dead
	n.ledger.dead = true
	n.ledger.mu.Unlock()
	if first {
		n.Leases.Freeze()
		n.transcript.Add("%s: dies %s", n.name, where)
	}
	<-n.testEnd
}

// sleep waits for a virtual duration.
func sleep(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// waitForReleases waits until releases are done: the lessor delays them shortly to batch them.
func waitForReleases(t *testing.T) {
	t.Helper()
	sleep(t, 10*time.Millisecond)
	synctest.Wait()
}

func policyOf(r flight.Recovery) flight.Policy {
	return flight.Policy{Recovery: r, AttemptTimeout: 10 * time.Second}
}

var recoveries = [...]flight.Recovery{flight.RecoveryHold, flight.RecoveryResend, flight.RecoveryVerify}
