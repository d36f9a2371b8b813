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

// side is one of those that are compared.
type side struct {
	name    string
	callers int
	once    func(ctx context.Context, n int) error
}

// take runs all sides in turn, round by round, and tells for each the seconds per unit and the latencies of a round.
func take(ctx context.Context, o *options, tell *teller, sides []side) error {
	var number atomic.Int64
	number.Store(int64(fresh()))
	for round := range o.rounds + 1 { // the first one warms up and does not count
		for i := range sides {
			one := &sides[(i+round)%len(sides)] // nobody is always first
			f, err := one.run(ctx, o.span, &number)
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			if round > 0 {
				tell.write(said{Name: one.name, Figures: f})
			}
			fmt.Fprintf(os.Stderr, "round %d  %-40s %8.0f/s  median %.3f ms  p99 %.3f ms\n", round, one.name, f["rate"], f["median"]*1e3, f["p99"]*1e3)
			runtime.GC() // nobody pays for what others left
		}
	}
	return tell.err
}

// run lets the callers of a side work for the span.
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

// collect hears all that a part of comparisons tells.
func collect(ctx context.Context, o options, part string, into map[string][]map[string]float64) error {
	return hearAll(ctx, o, func(one said) { into[one.Name] = append(into[one.Name], one.Figures) }, part)
}

// pass has a part of comparisons run, and tells what it tells.
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
