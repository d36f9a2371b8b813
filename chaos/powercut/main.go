package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"

	"github.com/flightd/flightd/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		os.Exit(1)
	}
}

// bootTimeout limits the time from power-on to a ready flightd.
const bootTimeout = 3 * time.Minute

func run(ctx context.Context) error {
	rounds := flag.Int("rounds", 8, "number of power cuts")
	first := flag.Bool("first", false, "cut the power during first starts, not under load")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of the moments of the cuts")
	dir := flag.String("dir", "bin/powercut", "directory for disk images and logs")
	flightd := flag.String("flightd", "bin/flightd", "the static binary under test")
	accel := flag.String("accel", "tcg,thread=multi", "qemu accelerator; use kvm if the host has it")
	flag.Parse()
	random := rand.New(rand.NewPCG(*seed, 0))
	fmt.Printf("seed %d\n", *seed)
	s := lab{dir: *dir, accel: *accel, random: random}
	if err := s.build(ctx, *flightd); err != nil {
		return err
	}
	if *first {
		return s.cutFirstStarts(ctx, *rounds)
	}
	return s.cutUnderLoad(ctx, *rounds)
}

// lab holds the disk images and logs of the machines, of which one runs at a time.
type lab struct {
	dir, accel string
	random     *rand.Rand
	started    int // number of machines so far, for the names of their logs
}

// cutUnderLoad cuts the power while callers are running, starts the machine again, and checks all keys.
func (la *lab) cutUnderLoad(ctx context.Context, rounds int) error {
	if err := la.resetDisk(ctx); err != nil {
		return err
	}
	m, err := la.powerOn(ctx)
	if err != nil {
		return err
	}
	defer func() { m.Kill() }()
	c, err := la.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	j := newChecker(c, la.random.Uint64())
	for round := 1; round <= rounds; round++ {
		span := time.Duration(2000+la.random.IntN(9000)) * time.Millisecond
		work := j.startCallers(ctx)
		if !sleep(ctx, span) {
			return context.Cause(ctx)
		}
		m.Kill()
		keys := work()
		began := time.Now()
		restarted, err := la.powerOn(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		m = restarted
		found := j.check(ctx, keys)
		fmt.Printf("round %d: cut after %v, ready again after %v: %v\n", round, span, time.Since(began).Round(time.Second), found)
		if found.broken > 0 {
			return fmt.Errorf("%d promises broken", found.broken)
		}
	}
	return nil
}

// cutFirstStarts cuts the power while flightd creates its data directory, and checks that the next start works.
func (la *lab) cutFirstStarts(ctx context.Context, rounds int) error {
	for round := 1; round <= rounds; round++ {
		if err := la.resetDisk(ctx); err != nil {
			return err
		}
		after := time.Duration(la.random.IntN(2500)) * time.Millisecond
		if err := la.bootAndCut(ctx, after); err != nil {
			return err
		}
		m, err := la.powerOn(ctx)
		if err != nil {
			return fmt.Errorf("round %d, cut %v after the first file: %w", round, after, err)
		}
		c, err := la.connect(ctx)
		if err != nil {
			m.Kill()
			return err
		}
		j := newChecker(c, la.random.Uint64())
		k := j.newKey()
		j.callFirst(ctx, k)
		_ = c.Close(ctx)
		m.Kill()
		if !k.acknowledged {
			return fmt.Errorf("round %d, cut %v after the first file: no flight succeeds: %w", round, after, k.err)
		}
		fmt.Printf("round %d: cut %v after the first file: ready again, and a flight succeeded\n", round, after)
	}
	return nil
}

// connect returns a client with an empty spool.
func (la *lab) connect(ctx context.Context) (*client.Client, error) {
	spool := la.path("spool")
	if err := os.RemoveAll(spool); err != nil {
		return nil, err
	}
	return client.Connect(ctx, address, client.WithSpool(spool), client.WithLogger(slog.New(slog.DiscardHandler)))
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
