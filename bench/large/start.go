package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// openPart opens a ledger, writes "ready", and closes it at the end of standard input. With -busy it adds new keys
// meanwhile.
func openPart(ctx context.Context, o options, out *metricWriter) error {
	s, err := clusterstore.Open(ctx, clusterstore.Config{Dir: ledgerOf(o.partDir())})
	if err != nil {
		return err
	}
	n := rand.IntN(o.receipts)
	f, err := s.Flight(keyOf(n).FlightID())
	if err != nil || f == nil || f.State != flight.StateSucceeded {
		return fmt.Errorf("%s: not found: %v", keyOf(n), err)
	}
	out.report("ready", 0)
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	if o.busy {
		from := unusedKeys()
		for w := range o.callers {
			group.Go(func() {
				for n := from + w; ctx.Err() == nil; n += o.callers {
					if openAndReport(ctx, s, &o, n) != nil {
						return
					}
				}
			})
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	cancel()
	group.Wait()
	if err != nil {
		return err
	}
	return s.Close(context.WithoutCancel(ctx))
}

// unusedKeys returns a negative number: the following numbers belong to keys that were never used.
func unusedKeys() int { return -int(time.Now().UnixMicro()) }

const starts = 3

// measureStarts measures the start after a stop, and the start after the process was killed under load, several times.
func measureStarts(ctx context.Context, o options, r *results) error {
	for range starts {
		took, c, err := startOnce(ctx, o)
		if err != nil {
			return err
		}
		r.startsAfterStop = append(r.startsAfterStop, took)
		if err := c.stop(); err != nil {
			return err
		}
		if _, c, err = startOnce(ctx, o, "-busy"); err != nil {
			return err
		}
		time.Sleep(3 * time.Second) // the load must run for a while before the kill
		if err := c.kill(); err != nil {
			return err
		}
		if took, c, err = startOnce(ctx, o); err != nil {
			return err
		}
		r.startsAfterKill = append(r.startsAfterKill, took)
		if err := c.stop(); err != nil {
			return err
		}
	}
	return nil
}

// startOnce starts a process on the ledger and measures the time until it is ready.
func startOnce(ctx context.Context, o options, more ...string) (seconds float64, c *child, err error) {
	began := time.Now()
	if c, err = startPart(ctx, o, "open", more...); err != nil {
		return 0, nil, err
	}
	if _, err := c.expect("ready"); err != nil {
		return 0, nil, err
	}
	return time.Since(began).Seconds(), c, nil
}
