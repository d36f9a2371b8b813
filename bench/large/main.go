package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/flightd/flightd/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "large:", err)
		os.Exit(1)
	}
}

// options are the command-line options.
type options struct {
	receipts int
	ending   int // additional receipts whose retention ends in the run
	rounds   int
	span     time.Duration
	callers  int
	dir      string
	part     string
	empty    bool
	busy     bool
	profile  string
	url      string
	suffix   string
	resume   string
	from     int
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("large", flag.ContinueOnError)
	flags.IntVar(&o.receipts, "receipts", 10_000_000, "number of receipts that stay")
	flags.IntVar(&o.ending, "ending", -1, "number of additional receipts that expire in the run (default: a tenth of -receipts)")
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of each comparison; medians are printed")
	flags.DurationVar(&o.span, "span", 2*time.Second, "duration of each variant in a round")
	flags.IntVar(&o.callers, "callers", 64, "number of callers in comparisons")
	flags.StringVar(&o.dir, "dir", "", "directory for data, which is removed at the end (default: the system's temporary directory)")
	flags.StringVar(&o.part, "part", "", "run one part in this process, on the data in -dir (internal)")
	flags.BoolVar(&o.empty, "empty", false, "with -part: use the empty ledger")
	flags.BoolVar(&o.busy, "busy", false, "with -part: generate load")
	flags.StringVar(&o.url, "url", "", "with -part callers: URL of the node")
	flags.StringVar(&o.suffix, "how", "", "with -part callers: suffix of the metric names")
	flags.StringVar(&o.resume, "resume", "", "continue with the data of a killed run in this directory, which is removed at the end")
	flags.IntVar(&o.from, "from", 0, "with -resume: number of receipts that are already loaded")
	flags.StringVar(&o.profile, "cpuprofile", "", "with -part: file for a CPU profile")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.ending < 0 {
		o.ending = o.receipts / 10
	}
	if o.resume == "" && o.part == "" && o.from != 0 {
		return o, fmt.Errorf("-from needs -resume")
	}
	if o.receipts < 10_000 || o.rounds < 1 || o.span <= 0 || o.callers < 1 {
		return o, fmt.Errorf("-receipts must be at least 10000, -rounds and -callers at least 1, and -span positive")
	}
	return o, nil
}

// makeDir creates the data directory, or returns the one to resume.
func (o *options) makeDir() (string, error) {
	if o.resume != "" {
		_, err := os.Stat(ledgerOf(filepath.Join(o.resume, "full")))
		return o.resume, err
	}
	return os.MkdirTemp(o.dir, "flightd-large-")
}

// parts are the functions that run in their own process, by name.
func parts() map[string]func(context.Context, options, *metricWriter) error {
	return map[string]func(context.Context, options, *metricWriter) error{
		"load": loadPart, "open": openPart, "ledgers": ledgersPart, "ending": expiryPart, "node": nodePart, "nodes": nodesPart,
		"callers": callersPart,
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.part != "" {
		part := parts()[o.part]
		if part == nil {
			return fmt.Errorf("-part %s: unknown part", o.part)
		}
		if o.part != "callers" {
			node.Tune(1) // as flightd itself does
		}
		if o.profile == "" {
			return part(ctx, o, &metricWriter{out: os.Stdout})
		}
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		err = part(ctx, o, &metricWriter{out: os.Stdout})
		pprof.StopCPUProfile()
		return errors.Join(err, file.Close())
	}
	if o.dir, err = o.makeDir(); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	return r.writeTable(os.Stdout, o)
}

// The data directories of the two nodes that are compared.
func (o *options) fullDir() string  { return filepath.Join(o.dir, "full") }
func (o *options) emptyDir() string { return filepath.Join(o.dir, "empty") }

func (o *options) partDir() string {
	if o.empty {
		return o.emptyDir()
	}
	return o.fullDir()
}

func ledgerOf(data string) string { return filepath.Join(data, "ledger") }

// measure runs all parts, one after the other.
func measure(ctx context.Context, o options) (*results, error) {
	r := new(results)
	for _, part := range []func(context.Context, options, *results) error{measureLoad, measureStarts, measureLedgers, measureExpiry, measureNode, measureNodes} {
		if err := part(ctx, o, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}
