package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/clusterstore"
)

// The variants of the last comparison: new keys while no receipt expires, and while receipts expire.
const idleLoad, expiryLoad = "new keys, nothing ends", "new keys, retentions end"

// Both variants have the same load: pacedCallers callers, each with a pause after every flight, so that the machine has
// spare capacity and a stall is visible.
const (
	pacedCallers = 8
	pacePause    = 2 * time.Millisecond
)

// expiryPart measures the latency of new keys before and while the ended retentions expire.
func expiryPart(ctx context.Context, o options, out *metricWriter) error {
	s, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(o.fullDir())})
	if err != nil {
		return err
	}
	waitCompacted(ctx, s)
	quiet, cancel := context.WithTimeout(ctx, 8*o.span)
	err = errors.Join(err, pacedLoad(quiet, s, &o, out, idleLoad))
	cancel()
	ending, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { err = errors.Join(err, pacedLoad(ending, s, &o, out, expiryLoad)) })
	start := time.Now()
	n, failed := s.Expire(ctx, clusterstore.NoLimit)
	took := time.Since(start)
	cancel()
	group.Wait()
	out.report("ended", float64(n))
	out.report("seconds", took.Seconds())
	return errors.Join(err, failed, s.Close(ctx), out.err)
}

// pacedLoad opens and reports new keys until ctx ends, and writes their latencies. It waits for its callers.
func pacedLoad(ctx context.Context, s *clusterstore.Store, o *options, out *metricWriter, name string) error {
	took := make([][]time.Duration, pacedCallers)
	errs := make([]error, pacedCallers)
	from, start := unusedKeys(), time.Now()
	var group sync.WaitGroup
	for w := range pacedCallers {
		group.Go(func() {
			for n := from + w; ctx.Err() == nil && errs[w] == nil; n += pacedCallers {
				began := time.Now()
				errs[w] = openAndReport(context.WithoutCancel(ctx), s, o, n)
				took[w] = append(took[w], time.Since(began))
				time.Sleep(pacePause)
			}
		})
	}
	group.Wait()
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	out.write(metric{Name: name, Values: figures(all, time.Since(start))})
	return errors.Join(errs...)
}

func measureExpiry(ctx context.Context, o options, r *results) error {
	c, err := startPart(ctx, o, "ending")
	if err != nil {
		return err
	}
	for _, name := range [...]string{idleLoad, expiryLoad} {
		one, err := c.next()
		if err != nil {
			return err
		}
		r.compared[name] = append(r.compared[name], one.Values)
	}
	if r.ended, err = c.expect("ended"); err != nil {
		return err
	}
	if r.endedSeconds, err = c.expect("seconds"); err != nil {
		return err
	}
	return c.stop()
}
