package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// variant is one of the operations that are compared.
type side struct {
	name    string
	callers int
	once    func(ctx context.Context, n int) error
}

// compare runs all variants in turn, round by round, and writes the time per unit and the latencies of each.
func take(ctx context.Context, o *options, tell *teller, sides []side) error {
	var number atomic.Int64
	number.Store(int64(fresh()))
	for round := range o.rounds + 1 { // round 0 warms up and is discarded
		for i := range sides {
			one := &sides[(i+round)%len(sides)] // the order rotates
			f, err := one.run(ctx, o.span, &number)
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			if round > 0 {
				tell.write(said{Name: one.name, Figures: f})
			}
			fmt.Fprintf(os.Stderr, "round %d  %-40s %8.0f/s  median %.3f ms  p99 %.3f ms\n", round, one.name, f["rate"], f["median"]*1e3, f["p99"]*1e3)
			runtime.GC() // collects the garbage of this variant before the next one
		}
	}
	return tell.err
}

// run runs the callers of a variant for the span, and waits for them.
func (s *side) run(ctx context.Context, span time.Duration, number *atomic.Int64) (map[string]float64, error) {
	took := make([][]time.Duration, s.callers)
	errs := make([]error, s.callers)
	var group sync.WaitGroup
	start := time.Now()
	for i := range s.callers {
		group.Go(func() {
			for time.Since(start) < span && errs[i] == nil {
				began := time.Now()
				errs[i] = s.once(ctx, int(number.Add(1)))
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	group.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return figures(slices.Concat(took...), elapsed), nil
}

func figures(took []time.Duration, elapsed time.Duration) map[string]float64 {
	slices.Sort(took)
	n := len(took)
	return map[string]float64{
		"rate": float64(n) / elapsed.Seconds(), "unit": elapsed.Seconds() / float64(n), "median": took[n/2].Seconds(),
		"p99": took[n*99/100].Seconds(), "p999": took[n*999/1000].Seconds(), "max": took[n-1].Seconds(),
	}
}

// collectMetrics runs a part of comparisons and collects its metrics by name.
func collect(ctx context.Context, o options, part string, into map[string][]map[string]float64) error {
	return hearAll(ctx, o, func(one said) { into[one.Name] = append(into[one.Name], one.Figures) }, part)
}

// forwardMetrics runs a part of comparisons and writes its metrics as its own.
func pass(ctx context.Context, o options, tell *teller, part string, more ...string) error {
	return errors.Join(hearAll(ctx, o, tell.write, part, more...), tell.err)
}

func hearAll(ctx context.Context, o options, hear func(said), part string, more ...string) error {
	c, err := start(ctx, o, part, more...)
	if err != nil {
		return err
	}
	for {
		one, err := c.listen()
		if err != nil {
			return err
		}
		if one.Name == "done" {
			return c.end()
		}
		hear(one)
	}
}
