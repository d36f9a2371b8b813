package remote_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
	"github.com/flightd/flightd/remote"
)

var update = flag.Bool("update", false, "write the golden transcripts anew")

type (
	transcript = executortest.Transcript
	provider   = executortest.Provider
)

// cluster is the ledger and the etcd that nodes share.
type cluster struct {
	t          *testing.T
	transcript *transcript
	ledger     *flightdtest.Ledger
	etcd       *leasetest.Etcd
	next       atomic.Pointer[node] // the node for callers whose own node does not answer
}

// node is one node of a cluster.
type node struct {
	*remote.Service
	leases     *leasetest.Fake
	ledger     *faultyLedger
	name       string
	transcript *transcript
	testEnd    chan struct{} // closed at the end of the test: blocked calls of a dead node return then
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t: t, transcript: new(transcript), ledger: flightdtest.NewLedger(), etcd: leasetest.NewEtcd()}
}

// node starts a node with a sweeper. It dies when it first passes the named point, or never if the name is "".
func (cl *cluster) node(name, dies string) *node {
	n := &node{name: name, transcript: cl.transcript, testEnd: make(chan struct{})}
	n.ledger = &faultyLedger{Follower: cl.ledger.Follower(), onAnswer: n.logCommand}
	n.leases = leasetest.Open(cl.t, cl.etcd, nil, leasetest.Options{Ledger: n.ledger,
		Events: lease.Events{Claimed: func(flight.Key, flight.SessionID) {
			if !n.ledger.isDead() {
				cl.transcript.Add("%s: claimed", name)
			}
		}}})
	n.leases.SlowAnswers(time.Millisecond) // claim and Open are sent at once: so the ledger always answers first
	sweeper := executor.NewSweeper(executor.SweeperConfig{Ledger: n.ledger, Reader: n.ledger, Sessions: n.ledger, Leases: n.leases})
	cfg := remote.Config{Leases: n.leases, Checker: sweeper, Crash: func(point string) {
		if point == dies {
			time.Sleep(10 * time.Millisecond) // virtual time: the claim that is under way succeeds
			n.die(point)
		}
	}}
	n.ledger.configure(&cfg)
	var err error
	n.Service, err = remote.New(context.Background(), cfg)
	require.NoError(cl.t, err)
	ctx, stop := context.WithCancel(context.Background())
	var swept sync.WaitGroup
	swept.Go(func() { sweeper.Run(ctx) })
	cl.t.Cleanup(func() {
		close(n.testEnd)
		stop()
		n.leases.Thaw()
		swept.Wait()
		require.NoError(cl.t, n.Close(context.Background()))
	})
	return n
}

// die is kill -9 as other nodes see it: the node's requests no longer reach etcd or the ledger. It returns at the end
// of the test.
func (n *node) die(where string) {
	if n.ledger.die(n.testEnd) {
		n.leases.Freeze()
		n.transcript.Add("%s: dies %s", n.name, where)
	}
	<-n.testEnd
}

// logCommand records a command and its reply.
func (n *node) logCommand(c flight.Command, reply flight.Reply, err error) {
	what := ""
	switch c := c.(type) {
	case *flight.RecordGuard, *flight.WithdrawSession:
		return // in the background, in no order
	case *flight.Report:
		what = fmt.Sprintf("report %v of attempt %d", c.Outcome, c.Token.Number)
	case *flight.EndSession:
		n.transcript.Add("%s: the session has ended: %v", n.name, reply.Decision)
		return
	case *flight.ReportFinding:
		what = "finding " + c.Finding.String()
	default:
		what = strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c), "*flight."))
	}
	switch {
	case err != nil || reply.Flight == nil:
		n.transcript.Add("%s: %s: %v %v", n.name, what, reply.Decision, err)
	case reply.Decision == flight.DecisionProceed:
		n.transcript.Add("%s: %s: proceed with attempt %d", n.name, what, reply.Token.Number)
	default:
		n.transcript.Add("%s: %s: %v, %v", n.name, what, reply.Decision, reply.Flight.State)
	}
}
