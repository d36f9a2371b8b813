package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// Receipts are loaded in batches, by parallel loaders.
const (
	loaders   = 4
	batchSize = 1000
)

// loadPart fills a new ledger.
func loadPart(ctx context.Context, o options, out *metricWriter) error {
	s, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(o.fullDir())})
	if err != nil {
		return err
	}
	start := time.Now()
	if err := loadAll(ctx, s, &o, start); err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	took := time.Since(start)
	out.report("loaded", took.Seconds())
	out.report("heap", heap())
	if err := s.Close(ctx); err != nil {
		return err
	}
	return out.err
}

func loadAll(ctx context.Context, s *clusterstore.Store, o *options, start time.Time) error {
	total := o.receipts + o.ending
	var next, done atomic.Int64
	next.Store(int64(o.from))
	errs := make([]error, loaders)
	var group sync.WaitGroup
	for w := range loaders {
		group.Go(func() {
			for errs[w] == nil && ctx.Err() == nil {
				from := int(next.Add(batchSize)) - batchSize
				if from >= total {
					return
				}
				errs[w] = loadBatch(ctx, s, o, from, min(from+batchSize, total))
				if n := done.Add(batchSize); n%500_000 == 0 {
					fmt.Fprintf(os.Stderr, "%d receipts after %v\n", n, time.Since(start).Round(time.Second))
				}
			}
		})
	}
	group.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// loadBatch proposes an Open and a Report for each key in one batch. The token of a first attempt is known in advance.
func loadBatch(ctx context.Context, s *clusterstore.Store, o *options, from, to int) error {
	commands := make([]flight.Command, 0, 2*(to-from))
	for n := from; n < to; n++ {
		g := flightAt(o, n)
		open := g.open(s)
		commands = append(commands, open, g.report(flight.Token{StoreEpoch: open.StoreEpoch, Number: 1}))
	}
	replies, err := s.ProposeAll(ctx, commands)
	if err != nil {
		return err
	}
	for i := 0; i < len(commands); i += 2 {
		if replies[i].Decision == flight.DecisionReplay {
			continue // stored by a run that was killed
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

func measureLoad(ctx context.Context, o options, r *results) error {
	c, err := startPart(ctx, o, "load")
	if err != nil {
		return err
	}
	if r.loadSeconds, err = c.expect("loaded"); err != nil {
		return err
	}
	if r.loadHeap, err = c.expect("heap"); err != nil {
		return err
	}
	if err := c.stop(); err != nil {
		return err
	}
	r.loadMemory = c.peak()
	r.disk, err = diskOf(ledgerOf(o.fullDir()))
	return err
}
