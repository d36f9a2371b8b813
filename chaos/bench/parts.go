package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// The workloads of a large ledger that are compared in pairs.
const (
	ledgerFull, ledgerEmpty = "ledger, new key, full", "ledger, new key, empty"
	ledgerRandom, ledgerHot = "ledger, random receipt", "ledger, hot receipt"
	nodeFull, nodeEmpty     = "node, new key, full", "node, new key, empty"
)

// hotKeys is the number of keys from which a hot replay is drawn.
const hotKeys = 100

func openLedger(ctx context.Context, data string) (*clusterstore.Store, error) {
	return clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(data)})
}

// newKeysIn returns a function that opens and reports a new order in a ledger.
func (o *options) newKeysIn(s *clusterstore.Store) func(context.Context, uint64) error {
	return func(ctx context.Context, n uint64) error { return o.largeOrder(n).openAndReport(ctx, s, unclaimed(s)) }
}

func always(uint64) bool { return true }

// loadPart fills a new ledger, in batches by parallel loaders. Nodes have started on it and on the empty one before: a node rejects a
// ledger that another program has made, as a copy.
func loadPart(ctx context.Context, o *options, r *report) error {
	for _, data := range [...]string{o.fullDir(), o.emptyDir()} {
		n, err := openFlightd(ctx, data, access{})
		if err != nil {
			return err
		}
		if err := n.close(); err != nil {
			return err
		}
	}
	s, err := openLedger(ctx, o.fullDir())
	if err != nil {
		return err
	}
	const loaders, batchSize, logged = 4, 1000, 500
	all, start := o.large.stored+o.large.ending, time.Now()
	_, err = load{callers: loaders, more: func(n uint64) bool { return n*batchSize < all }, once: func(ctx context.Context, n uint64) error {
		if n%logged == 0 {
			fmt.Fprintf(os.Stderr, "%d receipts after %v\n", n*batchSize, time.Since(start).Round(time.Second))
		}
		return o.loadBatch(ctx, s, n*batchSize, min((n+1)*batchSize, all))
	}}.run(ctx, new(atomic.Uint64))
	r.row("loaded through the ledger, an open and a report each", "", "%.0f/s", float64(all)/time.Since(start).Seconds())
	r.memoryRow("memory of the ledger while it is loaded")
	if err := errors.Join(err, ctx.Err(), s.Close(ctx)); err != nil {
		return err
	}
	// A file with several hard links counts for the first folder that has one: the state.
	sizes, err := exec.CommandContext(ctx, "sh", "-c", `cd "$0" && du -csB1 state-* log snapshots`, ledgerOf(o.fullDir())).Output()
	if err != nil {
		return fmt.Errorf("du: %w", err)
	}
	for line := range strings.Lines(string(sizes)) {
		size, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, _ := strconv.ParseFloat(size, 64) // always a number
		r.row("disk per receipt, "+strings.TrimRight(folder, "-0123456789"), "", "%.0f bytes", n/float64(all))
	}
	return nil
}

// loadBatch proposes an Open and a Report for each order in one batch. The token of a first attempt is known in advance.
func (o *options) loadBatch(ctx context.Context, s *clusterstore.Store, from, to uint64) error {
	commands := make([]flight.Command, 0, 2*(to-from))
	for n := from; n < to; n++ {
		l := o.largeOrder(n)
		open := l.open(s, unclaimed(s))
		commands = append(commands, open, l.report(flight.Token{StoreEpoch: open.StoreEpoch, Number: 1}))
	}
	replies, err := s.ProposeAll(ctx, commands)
	if err != nil {
		return err
	}
	for i := 0; i < len(commands); i += 2 {
		if replies[i].Decision == flight.DecisionReplay {
			continue // proposed again, because the answer to the first proposal was lost
		}
		if replies[i].Decision != flight.DecisionProceed {
			return fmt.Errorf("%s: the decision is %v, not proceed", commands[i].Target(), replies[i].Decision)
		}
		if replies[i+1].Decision == flight.DecisionAccepted {
			continue
		}
		if _, err := s.Propose(ctx, commands[i+1]); err != nil { // the Report was applied before its Open
			return err
		}
	}
	return nil
}

// openPart opens the ledger, reads a flight, and closes the ledger.
func openPart(ctx context.Context, o *options, r *report) error {
	s, err := openLedger(ctx, o.fullDir())
	if err != nil {
		return err
	}
	key := orderKey(rand.Uint64N(o.large.stored))
	f, err := s.Flight(key.FlightID())
	if err != nil || f == nil || f.State != flight.StateSucceeded {
		return fmt.Errorf("%s: not found: %v", key, err)
	}
	r.Seconds = time.Since(o.began).Seconds()
	return s.Close(ctx)
}

// busyPart writes that it is ready, and adds new keys to the ledger until it is killed.
func busyPart(ctx context.Context, o *options, _ *report) error {
	s, err := openLedger(ctx, o.fullDir())
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = load{callers: o.many(), once: o.newKeysIn(s), more: always}.run(ctx, unusedNumbers())
	return err
}

// ledgerPart compares the full ledger with an empty one.
func ledgerPart(ctx context.Context, o *options, r *report) error {
	full, err := openLedger(ctx, o.fullDir())
	if err != nil {
		return err
	}
	empty, err := openLedger(ctx, o.emptyDir())
	if err != nil {
		return errors.Join(err, full.Close(ctx))
	}
	waitCompacted(ctx, full)
	read := func(keys uint64) func(context.Context, uint64) error {
		return func(context.Context, uint64) error { return readReceipt(full, orderKey(rand.Uint64N(keys))) }
	}
	err = r.compare(ctx, o, 1, workload{name: ledgerRandom, once: read(o.large.stored)}, workload{name: ledgerHot, once: read(hotKeys)})
	if err == nil {
		err = r.compare(ctx, o, o.many(), workload{name: ledgerFull, once: o.newKeysIn(full)}, workload{name: ledgerEmpty, once: o.newKeysIn(empty)})
	}
	r.ratioRow("new key, ledger", "1.3", ledgerFull, ledgerEmpty, o.many())
	r.ratioRow("receipt read from the ledger, random against hot, one caller", "", ledgerRandom, ledgerHot, 1)
	return errors.Join(err, full.Close(ctx), empty.Close(ctx))
}

// waitCompacted waits until the compaction backlog has not changed for five seconds. A large ledger is measured at rest, not while its
// compactions still run.
func waitCompacted(ctx context.Context, s *clusterstore.Store) {
	const unchanged, interval = 5, time.Second
	for last, same := uint64(0), 0; same < unchanged && ctx.Err() == nil; same++ {
		if now := s.Stats().CompactionDebt; now != last {
			last, same = now, 0
		}
		time.Sleep(interval)
	}
	fmt.Fprintf(os.Stderr, "compaction backlog: %d MiB\n", s.Stats().CompactionDebt>>20)
}

// readReceipt reads a flight and the bytes of its receipt.
func readReceipt(s *clusterstore.Store, key flight.Key) error {
	f, err := s.Flight(key.FlightID())
	if err != nil || f == nil {
		return fmt.Errorf("%s: not found: %v", key, err)
	}
	body, err := s.Body(f.ID, f.Generation, clusterstore.BodyReceipt)
	if err == nil && flight.Digest(flight.FingerprintBytes(body)) != f.Receipt.Body.Digest {
		err = fmt.Errorf("%s: the stored receipt differs from the reported one", f.Key)
	}
	return err
}

// pacedCallers is the number of callers beside expiring retentions. Each pauses after every flight, so that the machine has spare
// capacity and a stall is visible.
const pacedCallers = 8

// retentionPart measures the latency of new keys before and while the ended retentions expire.
func retentionPart(ctx context.Context, o *options, r *report) error {
	s, err := openLedger(ctx, o.fullDir())
	if err != nil {
		return err
	}
	waitCompacted(ctx, s)
	paced := func(more func(uint64) bool) (measurement, error) {
		start := time.Now()
		took, err := load{callers: pacedCallers, pause: 2 * time.Millisecond, once: o.newKeysIn(s), more: more}.run(ctx, unusedNumbers())
		return summarize(took, time.Since(start)), err
	}
	start := time.Now()
	before, err := paced(func(uint64) bool { return time.Since(start) < 8*o.span })
	var expired atomic.Bool
	var during measurement
	loaded := make(chan error, 1)
	go func() { // waited for below
		var err error
		during, err = paced(func(uint64) bool { return !expired.Load() })
		loaded <- err
	}()
	start = time.Now()
	n, failed := s.Expire(ctx, clusterstore.NoLimit)
	r.row("retentions ended beside new keys", "", "%.0f/s, %d in all", float64(n)/time.Since(start).Seconds(), n)
	expired.Store(true)
	err = errors.Join(err, failed, <-loaded, s.Close(ctx))
	for _, p := range [...]struct {
		name string
		is   [2]time.Duration
	}{{"median", [2]time.Duration{before.Median, during.Median}}, {"p99", [2]time.Duration{before.P99, during.P99}},
		{"p999", [2]time.Duration{before.P999, during.P999}}, {"max", [2]time.Duration{before.Max, during.Max}}} {
		r.row("new key's "+p.name+", before and while retentions end", "", "%.1f ms, %.1f ms", ms(p.is[0]), ms(p.is[1]))
	}
	return err
}

// memoryPart runs a whole node with the full ledger under load: new keys, and replays of random keys.
func memoryPart(ctx context.Context, o *options, r *report) error {
	n, err := openFlightd(ctx, o.fullDir(), access{})
	if err != nil {
		return err
	}
	r.row("start of a whole node", "5 s", "%.2f s", time.Since(o.began).Seconds())
	execute, replay, start := newKeys(n.local, o.largeOrder), replays(n.local, o.largeOrder, o.large.stored), time.Now()
	_, err = load{callers: o.many(), more: func(uint64) bool { return time.Since(start) < 15*o.span }, once: func(ctx context.Context, n uint64) error {
		return errors.Join(execute(ctx, n), replay(ctx, n))
	}}.run(ctx, unusedNumbers())
	r.memoryRow("memory of a whole node under load")
	return errors.Join(err, n.close())
}

// nodePart measures replays of the full node, and then compares new keys of the full and the empty node. Replays come first because
// new keys cause compactions. No second node runs during the replays.
func nodePart(ctx context.Context, o *options, r *report) error {
	s, err := openLedger(ctx, o.fullDir())
	if err != nil {
		return err
	}
	waitCompacted(ctx, s)
	if err := s.Close(ctx); err != nil {
		return err
	}
	full, err := openFlightd(ctx, o.fullDir(), access{})
	if err != nil {
		return err
	}
	err = r.compareReplays(ctx, o, full, "")
	if unpin, failed := pin(o.fullDir()); failed != nil {
		fmt.Fprintln(os.Stderr, "skip replays with the tables in memory:", failed)
	} else if err == nil {
		err = errors.Join(r.compareReplays(ctx, o, full, ", tables in memory"), unpin())
	}
	empty, failed := openFlightd(ctx, o.emptyDir(), access{})
	if err := errors.Join(err, failed); err != nil {
		return errors.Join(err, full.close())
	}
	err = r.compare(ctx, o, o.many(), workload{name: nodeFull, once: newKeys(full.local, o.largeOrder)}, workload{name: nodeEmpty, once: newKeys(empty.local, o.largeOrder)})
	r.ratioRow("new key, node", "1.3", nodeFull, nodeEmpty, o.many())
	return errors.Join(err, empty.close(), full.close())
}

// compareReplays compares replays of random keys with replays of a few hot keys, in this process, and over HTTP by callers in another
// process.
func (r *report) compareReplays(ctx context.Context, o *options, n *flightd, how string) error {
	over, err := o.collect(ctx, "callers", "-url", n.url)
	if err != nil {
		return err
	}
	own := report{Results: make(results)}
	random, hot := replayPair(o, n.local)
	err = own.compare(ctx, o, 1, random, hot)
	over.ratioRow("replay over HTTP, random against hot, one caller"+how, "3", random.name, hot.name, 1)
	over.ratioRow(fmt.Sprintf("replay over HTTP, random against hot, %d callers%s", o.many(), how), "3", random.name, hot.name, o.many())
	own.ratioRow("replay in the process, random against hot, one caller"+how, "", random.name, hot.name, 1)
	r.Rows = slices.Concat(r.Rows, over.Rows, own.Rows)
	return err
}

// callersPart compares replays over HTTP from a node in another process.
func callersPart(ctx context.Context, o *options, r *report) error {
	remote, err := client.Connect(ctx, o.url, client.WithNamespace("bench"))
	if err != nil {
		return err
	}
	random, hot := replayPair(o, remote)
	err = r.compare(ctx, o, 1, random, hot)
	if err == nil && o.many() > 1 {
		err = r.compare(ctx, o, o.many(), random, hot)
	}
	return errors.Join(err, remote.Close(context.WithoutCancel(ctx)))
}

func replayPair(o *options, doer effect.Doer) (random, hot workload) {
	return workload{name: "random replay", once: replays(doer, o.largeOrder, o.large.stored)}, workload{name: "hot replay", once: replays(doer, o.largeOrder, hotKeys)}
}
