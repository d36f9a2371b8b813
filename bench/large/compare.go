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
type variant struct {
	name    string
	callers int
	op      func(ctx context.Context, n int) error
}

// compare runs all variants in turn, round by round, and writes the time per unit and the latencies of each.
func compare(ctx context.Context, o *options, out *metricWriter, variants []variant) error {
	var number atomic.Int64
	number.Store(int64(unusedKeys()))
	for round := range o.rounds + 1 { // round 0 warms up and is discarded
		for i := range variants {
			one := &variants[(i+round)%len(variants)] // the order rotates
			f, err := one.run(ctx, o.span, &number)
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			if round > 0 {
				out.write(metric{Name: one.name, Values: f})
			}
			fmt.Fprintf(os.Stderr, "round %d  %-40s %8.0f/s  median %.3f ms  p99 %.3f ms\n", round, one.name, f["rate"], f["median"]*1e3, f["p99"]*1e3)
			runtime.GC() // collects the garbage of this variant before the next one
		}
	}
	return out.err
}

// run runs the callers of a variant for the span, and waits for them.
func (v *variant) run(ctx context.Context, span time.Duration, number *atomic.Int64) (map[string]float64, error) {
	took := make([][]time.Duration, v.callers)
	errs := make([]error, v.callers)
	var group sync.WaitGroup
	start := time.Now()
	for i := range v.callers {
		group.Go(func() {
			for time.Since(start) < span && errs[i] == nil {
				began := time.Now()
				errs[i] = v.op(ctx, int(number.Add(1)))
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
func collectMetrics(ctx context.Context, o options, part string, into map[string][]map[string]float64) error {
	return readMetrics(ctx, o, func(one metric) { into[one.Name] = append(into[one.Name], one.Values) }, part)
}

// forwardMetrics runs a part of comparisons and writes its metrics as its own.
func forwardMetrics(ctx context.Context, o options, out *metricWriter, part string, more ...string) error {
	return errors.Join(readMetrics(ctx, o, out.write, part, more...), out.err)
}

func readMetrics(ctx context.Context, o options, hear func(metric), part string, more ...string) error {
	c, err := startPart(ctx, o, part, more...)
	if err != nil {
		return err
	}
	for {
		one, err := c.next()
		if err != nil {
			return err
		}
		if one.Name == "done" {
			return c.stop()
		}
		hear(one)
	}
}
