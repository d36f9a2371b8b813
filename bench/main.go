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

// options are what the command line says.
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
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	node.Tune()                         // as `flightd dev` does; it is the raw path's gain, too
	debug.SetMemoryLimit(math.MaxInt64) // the bound of a node alone; here two etcds and three ledgers share the process
	dir, err := os.MkdirTemp(o.dir, "flightd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	contestants, closeAll, err := line(ctx, o, dir)
	if err != nil {
		return err
	}
	stop, err := profile(o.profile)
	if err != nil {
		closeAll()
		return err
	}
	results, err := race(ctx, o, contestants)
	stop()
	err = errors.Join(err, allocations(o.memory))
	closeAll()
	if err != nil {
		return err
	}
	return print(os.Stdout, o, contestants, results)
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "rounds; the median is printed")
	flags.DurationVar(&o.span, "span", 2*time.Second, "how long each contestant runs in a round")
	flags.StringVar(&o.only, "only", "", "only contestants whose name contains this")
	flags.StringVar(&o.postgres, "postgres", os.Getenv("FLIGHTD_BENCH_POSTGRES"), "connection string of a Postgres with fsync on")
	flags.StringVar(&o.dir, "dir", "", "where data is kept; default: the system's place for temporary files")
	flags.StringVar(&o.url, "url", "", "load the flightd that answers there, over HTTP, and nothing else")
	flags.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile of all rounds")
	flags.StringVar(&o.memory, "memprofile", "", "file for a profile of what was allocated in all rounds")
	callers := flags.String("callers", "1,64,256", "numbers of callers")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for word := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-callers: %q is not a number of callers", word)
		}
		o.callers = append(o.callers, n)
	}
	if o.rounds < 1 || o.span <= 0 {
		return o, fmt.Errorf("-rounds and -span must be positive")
	}
	return o, nil
}

// allocations writes what was allocated so far, if that is wanted.
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

// profile starts a CPU profile, if one is wanted.
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
		_ = file.Close() // a torn profile says so when it is read
	}, nil
}
