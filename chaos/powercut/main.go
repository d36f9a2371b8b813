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
	m := machine{dir: *dir, accel: *accel, random: random}
	if err := m.build(ctx, *flightd); err != nil {
		return err
	}
	if *first {
		return m.cutFirstStarts(ctx, *rounds)
	}
	return m.cutUnderLoad(ctx, *rounds)
}

// machine is the virtual machine with flightd: its disk images, and the logs of its boots.
type machine struct {
	dir, accel string
	random     *rand.Rand
	boots      int // number of boots so far, for the names of the logs
}

// cutUnderLoad cuts the power while callers are running, starts the machine again, and checks all keys.
func (m *machine) cutUnderLoad(ctx context.Context, rounds int) error {
	if err := m.resetDisk(ctx); err != nil {
		return err
	}
	qemu, err := m.powerOn(ctx)
	if err != nil {
		return err
	}
	defer func() { qemu.Kill() }()
	c, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	j := newChecker(c, m.random.Uint64())
	for round := 1; round <= rounds; round++ {
		span := time.Duration(2000+m.random.IntN(9000)) * time.Millisecond
		stopCallers := j.startCallers(ctx)
		if !sleep(ctx, span) {
			return context.Cause(ctx)
		}
		qemu.Kill()
		keys := stopCallers()
		began := time.Now()
		restarted, err := m.powerOn(ctx)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		qemu = restarted
		found := j.check(ctx, keys)
		fmt.Printf("round %d: cut after %v, ready again after %v: %v\n", round, span, time.Since(began).Round(time.Second), found)
		if found.broken > 0 {
			return fmt.Errorf("%d promises broken", found.broken)
		}
	}
	return nil
}

// cutFirstStarts cuts the power while flightd creates its data directory, and checks that the next start works.
func (m *machine) cutFirstStarts(ctx context.Context, rounds int) error {
	for round := 1; round <= rounds; round++ {
		if err := m.resetDisk(ctx); err != nil {
			return err
		}
		after := time.Duration(m.random.IntN(2500)) * time.Millisecond
		if err := m.bootAndCut(ctx, after); err != nil {
			return err
		}
		qemu, err := m.powerOn(ctx)
		if err != nil {
			return fmt.Errorf("round %d, cut %v after the first file: %w", round, after, err)
		}
		c, err := m.connect(ctx)
		if err != nil {
			qemu.Kill()
			return err
		}
		j := newChecker(c, m.random.Uint64())
		k := j.newKey()
		j.callFirst(ctx, k)
		_ = c.Close(ctx)
		qemu.Kill()
		if !k.acknowledged {
			return fmt.Errorf("round %d, cut %v after the first file: no flight succeeds: %w", round, after, k.err)
		}
		fmt.Printf("round %d: cut %v after the first file: ready again, and a flight succeeded\n", round, after)
	}
	return nil
}

// connect returns a client with an empty spool.
func (m *machine) connect(ctx context.Context) (*client.Client, error) {
	spool := m.path("spool")
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
