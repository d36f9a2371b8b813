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
	"time"

	"github.com/flightd/flightd/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command-line options.
type options struct {
	rounds   int
	span     time.Duration
	callers  []int
	only     string
	postgres string
	dir      string
	profile  string
	memory   string
	url      string
	binary   string
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	node.Tune(1)                        // as flightd does; the raw path profits, too
	debug.SetMemoryLimit(math.MaxInt64) // Tune's limit is for one node; here are two etcds and three ledgers
	dir, err := os.MkdirTemp(o.dir, "flightd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, closeAll, err := workloads(ctx, o, dir)
	if err != nil {
		return err
	}
	stop, err := profile(o.profile)
	if err != nil {
		closeAll()
		return err
	}
	results, err := measureAll(ctx, o, all)
	stop()
	err = errors.Join(err, allocations(o.memory))
	closeAll()
	if err != nil {
		return err
	}
	return writeTable(os.Stdout, o, all, results)
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; the median is printed")
	flags.DurationVar(&o.span, "span", 2*time.Second, "duration of each workload in a round")
	flags.StringVar(&o.only, "only", "", "run only workloads whose name contains this")
	flags.StringVar(&o.postgres, "postgres", os.Getenv("FLIGHTD_BENCH_POSTGRES"), "connection string of a Postgres with fsync on")
	flags.StringVar(&o.dir, "dir", "", "directory for data (default: the system's temporary directory)")
	flags.StringVar(&o.url, "url", "", "measure only the flightd at this URL, over HTTP")
	flags.StringVar(&o.binary, "three", "", "compare one process of this flightd with three that are one cluster, over HTTP")
	flags.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of all rounds")
	flags.StringVar(&o.memory, "memprofile", "", "file for an allocation profile of all rounds")
	callers := flags.String("callers", "1,64,256", "numbers of callers")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for word := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-callers: %q is not a positive number", word)
		}
		o.callers = append(o.callers, n)
	}
	if o.rounds < 1 || o.span <= 0 {
		return o, fmt.Errorf("-rounds and -span must be positive")
	}
	return o, nil
}

// allocations writes an allocation profile, unless name is "".
func allocations(name string) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

// profile starts a CPU profile, unless name is "".
func profile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close() // a reader of the profile detects a truncated file
	}, nil
}
