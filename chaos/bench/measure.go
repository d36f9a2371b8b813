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
	"syscall"
	"time"
)

// workload is one measured way to make an effect happen once.
type workload struct {
	name    string
	newKeys bool                            // its rate is compared with the raw path's and the Postgres ledger's
	byHand  string                          // the workload with which its rate is compared, too; "": none
	prepare func(ctx context.Context) error // if not nil, runs before the first round
	// once does one unit of work. n is unique within a run.
	once func(ctx context.Context, n uint64) error
	// cleanUp, if not nil, runs after each measurement, so that leftover data does not slow the other workloads down.
	cleanUp func(ctx context.Context) error
}

// measurement is the result of one workload in one round.
type measurement struct {
	Rate                   float64 // units per second
	Median, P99, P999, Max time.Duration
	Processor              time.Duration // CPU time of the whole process, load included, per unit
	Objects                float64       // allocated objects per unit
}

// results are the measurements of all rounds by workload and number of callers.
type results map[string]map[int][]measurement

func (r results) add(name string, callers int, m measurement) {
	if r[name] == nil {
		r[name] = make(map[int][]measurement)
	}
	r[name][callers] = append(r[name][callers], m)
}

// usage is the total CPU time and number of allocations of the process, the peak of its resident memory, and its heap in bytes.
type usage struct {
	processor time.Duration
	objects   uint64
	peak      int64
	heap      uint64
}

func currentUsage() usage {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a wrong argument only
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	const unit = 1024 // Maxrss is in KiB on Linux
	return usage{time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.Mallocs, u.Maxrss * unit, m.HeapInuse}
}

// measure runs all workloads in turn, round by round, with each number of callers, and adds their measurements.
func (r results) measure(ctx context.Context, o *options, all ...workload) error {
	for _, w := range all {
		if w.prepare != nil {
			if err := w.prepare(ctx); err != nil {
				return fmt.Errorf("%s: prepare: %w", w.name, err)
			}
		}
	}
	number := unusedNumbers()
	for _, callers := range o.callers {
		for round := range o.rounds + 1 { // round 0 warms up and is discarded
			for i := range all {
				w, span := all[(i+round)%len(all)], o.span
				if round == 0 {
					span /= 4
				}
				before, start := currentUsage(), time.Now()
				took, err := load{callers: callers, once: w.once, more: func(uint64) bool { return time.Since(start) < span }}.run(ctx, number)
				elapsed, after := time.Since(start), currentUsage()
				if err == nil && len(took) == 0 {
					err = fmt.Errorf("no unit was finished within %v", span)
				}
				if err != nil {
					return fmt.Errorf("%s, %d callers: %w", w.name, callers, err)
				}
				if w.cleanUp != nil {
					if err := w.cleanUp(ctx); err != nil {
						return fmt.Errorf("%s: clean up: %w", w.name, err)
					}
				}
				runtime.GC() // collects the garbage of this workload before the next one
				m := summarize(took, elapsed)
				m.Processor = (after.processor - before.processor) / time.Duration(len(took))
				m.Objects = float64(after.objects-before.objects) / float64(len(took))
				if round > 0 {
					r.add(w.name, callers, m)
				}
				fmt.Fprintf(os.Stderr, "callers=%-3d round=%d %-34s %9.0f/s  median %8.3f ms  p99 %8.3f ms  processor %6.1f µs  %5.1f objects\n",
					callers, round, w.name, m.Rate, ms(m.Median), ms(m.P99), us(m.Processor), m.Objects)
			}
		}
	}
	return nil
}

// unusedNumbers returns a counter whose numbers are greater than those of stored flights, and of processes that ran before on the
// same ledger.
func unusedNumbers() *atomic.Uint64 {
	n := new(atomic.Uint64)
	n.Store(uint64(time.Now().UnixMicro()))
	return n
}

// load is the work of several callers, who do one unit after the other.
type load struct {
	callers int
	more    func(n uint64) bool // reports whether to begin unit n; the caller ends if not
	once    func(ctx context.Context, n uint64) error
	pause   time.Duration // of a caller after each unit
}

// run runs the callers, waits for them, and returns the durations of all units. The units have the numbers from number on. The first
// error ends the load.
func (l load) run(ctx context.Context, number *atomic.Uint64) ([]time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	took, errs := make([][]time.Duration, l.callers), make([]error, l.callers)
	var group sync.WaitGroup
	for i := range l.callers {
		group.Go(func() {
			var own []time.Duration // not in took, whose elements share cache lines
			for n := number.Add(1) - 1; ctx.Err() == nil && l.more(n); n = number.Add(1) - 1 {
				began := time.Now()
				if err := l.once(ctx, n); err != nil {
					errs[i] = err
					cancel()
					break
				}
				own = append(own, time.Since(began))
				time.Sleep(l.pause)
			}
			took[i] = own
		})
	}
	group.Wait()
	return slices.Concat(took...), errors.Join(errs...)
}

// summarize returns the rate and the latencies of units. It sorts their durations.
func summarize(took []time.Duration, elapsed time.Duration) measurement {
	slices.Sort(took)
	n := len(took)
	if n == 0 {
		return measurement{}
	}
	return measurement{Rate: float64(n) / elapsed.Seconds(), Median: took[n/2], P99: took[n*99/100], P999: took[n*999/1000], Max: took[n-1]}
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
