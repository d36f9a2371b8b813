package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flightd/flightd/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command-line options.
type options struct {
	args     []string
	began    time.Time // about when this process started
	rounds   int
	span     time.Duration
	callers  []int
	only     string
	postgres string
	dir      string
	url      string
	binary   string
	large    largeOptions
	profiles profileOptions
}

// largeOptions are those of a large ledger.
type largeOptions struct {
	stored uint64 // receipts that stay; 0: the table of workloads
	ending uint64 // receipts whose retention ends in the run
	part   string // of the measurement, in this process; "": all, each in a process of its own
}

// profileOptions are names of files; "": none.
type profileOptions struct{ cpu, memory string }

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.large.part != "" {
		return runPart(ctx, o)
	}
	if o.dir, err = os.MkdirTemp(o.dir, "flightd-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	node.Tune(&node.Config{}) // as flightd does; the raw path profits, too
	if o.large.stored > 0 {
		return measureLarge(ctx, o, os.Stdout)
	}
	debug.SetMemoryLimit(math.MaxInt64) // Tune's limit is for one node; here are two etcds and three ledgers
	all, closeAll, err := workloads(ctx, o)
	if err != nil {
		return err
	}
	r := results{}
	err = profiled(o, func() error { return r.measure(ctx, o, all...) })
	closeAll()
	if err != nil {
		return err
	}
	return writeFlights(os.Stdout, o, all, r)
}

func parse(args []string) (o *options, err error) {
	o = &options{args: args, began: time.Now()}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; the median is printed")
	flags.DurationVar(&o.span, "span", 2*time.Second, "duration of each workload in a round")
	flags.StringVar(&o.only, "only", "", "run only workloads whose name contains this, or one of several texts with | between them; with -stored: the load and this step of "+strings.Join(stepNames(), ", "))
	flags.StringVar(&o.postgres, "postgres", os.Getenv("FLIGHTD_BENCH_POSTGRES"), "connection string of a Postgres with fsync on")
	flags.StringVar(&o.dir, "dir", "", "directory for data, which is removed at the end (default: the system's temporary directory)")
	flags.StringVar(&o.url, "url", "", "measure only the flightd at this URL, over HTTP")
	flags.StringVar(&o.binary, "three", "", "compare one process of this flightd with three that are one cluster, over HTTP")
	flags.Uint64Var(&o.large.stored, "stored", 0, "measure a ledger with this number of receipts, which are stored first")
	ending := flags.Int64("ending", -1, "with -stored: number of additional receipts that expire in the run (default: a tenth)")
	flags.StringVar(&o.large.part, "part", "", "with -stored: run one part in this process, on the data in -dir (internal)")
	flags.StringVar(&o.profiles.cpu, "cpuprofile", "", "file for a CPU profile of all rounds; with -stored, beginning of the name of a file for each part")
	flags.StringVar(&o.profiles.memory, "memprofile", "", "file for an allocation profile of all rounds, likewise")
	callers := flags.String("callers", "", `numbers of callers (default "1,64,256"; with -stored "64")`)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.large.ending = uint64(*ending)
	if *ending < 0 {
		o.large.ending = o.large.stored / 10
	}
	switch {
	case *callers == "" && o.large.stored > 0:
		*callers = "64"
	case *callers == "":
		*callers = "1,64,256"
	}
	for word := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-callers: %q is not a positive number", word)
		}
		o.callers = append(o.callers, n)
	}
	if o.rounds < 1 || o.span <= 0 {
		return nil, fmt.Errorf("-rounds and -span must be positive")
	}
	if o.large.stored > 0 && o.large.stored < 10_000 {
		return nil, fmt.Errorf("-stored must be at least 10000")
	}
	return o, nil
}

// profiled calls f and writes the profiles of it that the options ask for.
func profiled(o *options, f func() error) error {
	if o.profiles.cpu != "" {
		file, err := os.Create(o.profiles.cpu + o.large.part)
		if err != nil {
			return err
		}
		defer file.Close() // a reader of the profile detects a truncated file
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if err := f(); err != nil || o.profiles.memory == "" {
		return err
	}
	file, err := os.Create(o.profiles.memory + o.large.part)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}
