package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/node"
)

// The variants of the comparison of two nodes.
const (
	nodeFull, nodeEmpty     = "node, new key, full", "node, new key, empty"
	replayRandom, replayHot = "executor, random replay", "executor, hot replay"
	httpRandom, httpHot     = "HTTP, random replay", "HTTP, hot replay"
	manyRandom, manyHot     = "HTTP, random replay, many callers", "HTTP, hot replay, many callers"
)

// runningNode is a node in this process.
type runningNode struct {
	local effect.Doer
	url   string
	stop  context.CancelFunc
	done  chan error
}

func openNode(ctx context.Context, data string) (*runningNode, error) {
	ctx, stop := context.WithCancel(ctx)
	n := &runningNode{stop: stop, done: make(chan error, 1)}
	ready := make(chan node.Ready, 1)
	go func() { // close waits for it
		n.done <- node.Run(ctx, node.Config{Data: data, Listen: "127.0.0.1:0", NoCredentials: true, Ready: func(r node.Ready) { ready <- r }})
	}()
	select {
	case r := <-ready:
		n.local, n.url = r.Executor, r.URL
		return n, nil
	case err := <-n.done:
		stop()
		return nil, errors.Join(errors.New("the node did not start"), err)
	}
}

func (n *runningNode) close() error {
	n.stop()
	return <-n.done
}

// newKey returns a function that executes a flight with a new key.
func (n *runningNode) newKey(o *options) func(context.Context, int) error {
	return func(ctx context.Context, number int) error {
		g := flightAt(o, number)
		_, err := n.local.Do(ctx, g.call(), g.effect)
		return err
	}
}

// replay returns a function that replays one of the first keys and checks its receipt.
func replay(o *options, doer effect.Doer, keys int) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		g := flightAt(o, rand.IntN(keys))
		result, err := doer.Do(ctx, g.call(), g.effect)
		switch {
		case err != nil:
			return err
		case result.Source != effect.SourceReplayed:
			return fmt.Errorf("replay of %s: the source is %s", g.key, result.Source)
		case result.Answer.ExternalID != g.externalID || len(result.Answer.Body) != len(g.body):
			return fmt.Errorf("%s: the stored receipt differs from the reported one", g.key)
		}
		return nil
	}
}

// nodesPart measures replays of the full node, and then compares new keys of the full and the empty node. Replays come
// first because new keys cause compactions. No second node runs during the replays.
func nodesPart(ctx context.Context, o options, out *metricWriter) error {
	if err := waitLedgerCompacted(ctx, o.fullDir()); err != nil {
		return err
	}
	full, err := openNode(ctx, o.fullDir())
	if err != nil {
		return err
	}
	if err = compareReplays(ctx, &o, out, full, ""); err == nil {
		err = comparePinned(ctx, &o, out, full)
	}
	if err == nil {
		err = compareNewKeys(ctx, &o, out, full)
	}
	out.report("done", 0)
	return errors.Join(err, full.close(), out.err)
}

func compareNewKeys(ctx context.Context, o *options, out *metricWriter, full *runningNode) error {
	empty, err := openNode(ctx, o.emptyDir())
	if err != nil {
		return err
	}
	err = compare(ctx, o, out, []variant{{nodeFull, o.callers, full.newKey(o)}, {nodeEmpty, o.callers, empty.newKey(o)}})
	return errors.Join(err, empty.close())
}

// compareReplays compares replays of random keys with replays of a few hot keys, in this process, and over HTTP by
// callers in another process.
func compareReplays(ctx context.Context, o *options, out *metricWriter, n *runningNode, how string) error {
	err := compare(ctx, o, out, []variant{
		{replayRandom + how, 1, replay(o, n.local, o.receipts)}, {replayHot + how, 1, replay(o, n.local, hotKeys)},
	})
	if err != nil {
		return err
	}
	return forwardMetrics(ctx, *o, out, "callers", "-url", n.url, "-how", how)
}

// callersPart compares replays over HTTP from a node in another process.
func callersPart(ctx context.Context, o options, out *metricWriter) error {
	remote, err := client.Connect(ctx, o.url, client.WithNamespace("shop"))
	if err != nil {
		return err
	}
	random, hot := replay(&o, remote, o.receipts), replay(&o, remote, hotKeys)
	err = compare(ctx, &o, out, []variant{{httpRandom + o.suffix, 1, random}, {httpHot + o.suffix, 1, hot}})
	if err == nil {
		err = compare(ctx, &o, out, []variant{{manyRandom + o.suffix, o.callers, random}, {manyHot + o.suffix, o.callers, hot}})
	}
	out.report("done", 0)
	return errors.Join(err, remote.Close(context.WithoutCancel(ctx)), out.err)
}

// pinned is the suffix of variants that run with the tables of the state locked in memory.
const pinned = ", tables in memory"

func comparePinned(ctx context.Context, o *options, out *metricWriter, n *runningNode) error {
	unpin, err := pin(o.fullDir())
	if err != nil {
		fmt.Fprintln(os.Stderr, "skip replays with the tables in memory:", err)
		return nil
	}
	return errors.Join(compareReplays(ctx, o, out, n, pinned), unpin())
}

// waitLedgerCompacted opens a ledger and waits until its compactions are done.
func waitLedgerCompacted(ctx context.Context, data string) error {
	s, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(data)})
	if err != nil {
		return err
	}
	waitCompacted(ctx, s)
	return s.Close(ctx)
}

func measureNodes(ctx context.Context, o options, r *results) error {
	return collectMetrics(ctx, o, "nodes", r.compared)
}

// nodePart runs a whole node with the full ledger under load: new keys, and replays of random keys.
func nodePart(ctx context.Context, o options, out *metricWriter) error {
	n, err := openNode(ctx, o.fullDir())
	if err != nil {
		return err
	}
	out.report("ready", 0)
	fly, again := n.newKey(&o), replay(&o, n.local, o.receipts)
	from, start := unusedKeys(), time.Now()
	errs := make([]error, o.callers)
	var group sync.WaitGroup
	for w := range o.callers {
		group.Go(func() {
			for i := from + w; time.Since(start) < 15*o.span && errs[w] == nil; i += o.callers {
				errs[w] = errors.Join(fly(ctx, i), again(ctx, i))
			}
		})
	}
	group.Wait()
	out.report("heap", heap())
	return errors.Join(append(errs, n.close(), out.err)...)
}

func measureNode(ctx context.Context, o options, r *results) error {
	began := time.Now()
	c, err := startPart(ctx, o, "node")
	if err != nil {
		return err
	}
	if _, err := c.expect("ready"); err != nil {
		return err
	}
	r.nodeStart = time.Since(began).Seconds()
	if r.nodeHeap, err = c.expect("heap"); err != nil {
		return err
	}
	r.nodeResident, _ = c.resident()
	err = c.stop()
	r.nodePeak = c.peak()
	return err
}
