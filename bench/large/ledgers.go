package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// The variants of the comparison of two ledgers.
const (
	ledgerFull, ledgerEmpty = "ledger, new key, full", "ledger, new key, empty"
	ledgerRandom, ledgerHot = "ledger, random receipt", "ledger, hot receipt"
)

// hotKeys is the number of keys from which a hot replay is drawn.
const hotKeys = 100

// ledgersPart compares the full ledger with an empty one.
func ledgersPart(ctx context.Context, o options, out *metricWriter) error {
	full, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(o.fullDir())})
	if err != nil {
		return err
	}
	empty, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(o.emptyDir())})
	if err != nil {
		return errors.Join(err, full.Close(ctx))
	}
	waitCompacted(ctx, full)
	newKey := func(s *clusterstore.Store) func(context.Context, int) error {
		return func(ctx context.Context, n int) error { return openAndReport(ctx, s, &o, n) }
	}
	err = compare(ctx, &o, out, []variant{
		{ledgerRandom, 1, func(context.Context, int) error { return readReceipt(full, rand.IntN(o.receipts)) }},
		{ledgerHot, 1, func(context.Context, int) error { return readReceipt(full, rand.IntN(hotKeys)) }},
	})
	if err == nil {
		err = compare(ctx, &o, out, []variant{{ledgerFull, o.callers, newKey(full)}, {ledgerEmpty, o.callers, newKey(empty)}})
	}
	out.report("done", 0)
	return errors.Join(err, full.Close(ctx), empty.Close(ctx), out.err)
}

// waitCompacted waits until the compaction backlog has not changed for five seconds. The bench measures a large ledger
// at rest, not one whose compactions still run.
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
func readReceipt(s *clusterstore.Store, n int) error {
	f, err := s.Flight(keyOf(n).FlightID())
	if err != nil || f == nil {
		return fmt.Errorf("%s: not found: %v", keyOf(n), err)
	}
	body, err := s.Body(f.ID, f.Generation, clusterstore.BodyReceipt)
	if err == nil && flight.Digest(flight.FingerprintBytes(body)) != f.Receipt.Body.Digest {
		err = fmt.Errorf("%s: the stored receipt differs from the reported one", f.Key)
	}
	return err
}

func measureLedgers(ctx context.Context, o options, r *results) error {
	r.compared = map[string][]map[string]float64{}
	return collectMetrics(ctx, o, "ledgers", r.compared)
}
