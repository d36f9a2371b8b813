package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// workload is one measured way to make an effect happen once.
type workload struct {
	name string
	note string
	// once does one unit of work. n is unique within a run.
	once func(ctx context.Context, n uint64) error
	// cleanUp, if not nil, runs after each measurement, so that leftover data does not slow the other workloads down.
	cleanUp func(ctx context.Context) error
	// callers, if not nil, lists the only numbers of callers with which the workload runs.
	callers []int
}

// measurement is the result of one workload in one round.
type measurement struct {
	perSecond float64
	median    time.Duration
	p99       time.Duration
	processor time.Duration // CPU time of the whole process, load included, per unit
	allocated float64       // allocated objects per unit
}

// usage is the total CPU time and number of allocations of the process.
type usage struct {
	processor time.Duration
	objects   uint64
}

func currentUsage() usage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a wrong argument only
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.Mallocs}
}

// cell identifies a result by workload and number of callers.
type cell struct {
	name    string
	callers int
}

// measureAll runs all workloads in turn, round by round.
func measureAll(ctx context.Context, o options, all []workload) (map[cell][]measurement, error) {
	results := make(map[cell][]measurement)
	var number atomic.Uint64
	for _, callers := range o.callers {
		for round := range o.rounds + 1 { // round 0 warms up and is discarded
			for _, c := range all {
				if c.callers != nil && !slices.Contains(c.callers, callers) {
					continue
				}
				span := o.span
				if round == 0 {
					span /= 4
				}
				f, err := load(ctx, c, callers, span, &number)
				if err != nil {
					return nil, fmt.Errorf("%s, %d callers: %w", c.name, callers, err)
				}
				if c.cleanUp != nil {
					if err := c.cleanUp(ctx); err != nil {
						return nil, fmt.Errorf("%s: clean up: %w", c.name, err)
					}
				}
				runtime.GC() // collects the garbage of this workload before the next one
				if round > 0 {
					results[cell{c.name, callers}] = append(results[cell{c.name, callers}], f)
				}
				fmt.Fprintf(os.Stderr, "callers=%-3d round=%d %-34s %9.0f/s  median %8.3f ms  p99 %8.3f ms  processor %6.1f µs  %5.1f objects\n",
					callers, round, c.name, f.perSecond, ms(f.median), ms(f.p99), us(f.processor), f.allocated)
			}
		}
	}
	return results, nil
}

// load runs the callers for the span and measures every unit. It waits for all callers, and returns the first error.
func load(ctx context.Context, c workload, callers int, span time.Duration, number *atomic.Uint64) (measurement, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	took := make([][]time.Duration, callers)
	errs := make([]error, callers)
	before, start := currentUsage(), time.Now()
	for i := range callers {
		wg.Go(func() {
			for time.Since(start) < span && ctx.Err() == nil {
				began := time.Now()
				if err := c.once(ctx, number.Add(1)); err != nil {
					errs[i] = err
					cancel()
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	elapsed, after := time.Since(start), currentUsage()
	for _, err := range errs {
		if err != nil {
			return measurement{}, err
		}
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return measurement{}, fmt.Errorf("no unit was finished within %v", span)
	}
	slices.Sort(all)
	return measurement{
		perSecond: float64(len(all)) / elapsed.Seconds(),
		median:    all[len(all)/2],
		p99:       all[len(all)*99/100],
		processor: (after.processor - before.processor) / time.Duration(len(all)),
		allocated: float64(after.objects-before.objects) / float64(len(all)),
	}, nil
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
