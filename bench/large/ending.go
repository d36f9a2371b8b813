package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/clusterstore"
)

// The variants of the last comparison: new keys while no receipt expires, and while receipts expire.
const calm, whileEnding = "new keys, nothing ends", "new keys, retentions end"

// Both variants have the same load: pacedCallers callers, each with a pause after every flight, so that the machine has
// spare capacity and a stall is visible.
const (
	paced     = 8
	pacePause = 2 * time.Millisecond
)

// expiryPart measures the latency of new keys before and while the ended retentions expire.
func endingPart(ctx context.Context, o options, tell *teller) error {
	s, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(o.full())})
	if err != nil {
		return err
	}
	settle(ctx, s)
	quiet, cancel := context.WithTimeout(ctx, 8*o.span)
	err = errors.Join(err, pacedLoad(quiet, s, &o, tell, calm))
	cancel()
	ending, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { err = errors.Join(err, pacedLoad(ending, s, &o, tell, whileEnding)) })
	start := time.Now()
	n, failed := s.Expire(ctx, clusterstore.NoLimit)
	took := time.Since(start)
	cancel()
	group.Wait()
	tell.say("ended", float64(n))
	tell.say("seconds", took.Seconds())
	return errors.Join(err, failed, s.Close(ctx), tell.err)
}

// pacedLoad opens and reports new keys until ctx ends, and writes their latencies. It waits for its callers.
func pacedLoad(ctx context.Context, s *clusterstore.Store, o *options, tell *teller, name string) error {
	took := make([][]time.Duration, paced)
	errs := make([]error, paced)
	from, start := fresh(), time.Now()
	var group sync.WaitGroup
	for w := range paced {
		group.Go(func() {
			for n := from + w; ctx.Err() == nil && errs[w] == nil; n += paced {
				began := time.Now()
				errs[w] = fly(context.WithoutCancel(ctx), s, o, n)
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
	tell.write(said{Name: name, Figures: figures(all, time.Since(start))})
	return errors.Join(errs...)
}

func measureEnding(ctx context.Context, o options, r *results) error {
	c, err := start(ctx, o, "ending")
	if err != nil {
		return err
	}
	for _, name := range [...]string{calm, whileEnding} {
		one, err := c.listen()
		if err != nil {
			return err
		}
		r.compared[name] = append(r.compared[name], one.Figures)
	}
	if r.ended, err = c.hear("ended"); err != nil {
		return err
	}
	if r.endedSeconds, err = c.hear("seconds"); err != nil {
		return err
	}
	return c.end()
}
