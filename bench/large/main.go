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

// options are what the command line says.
type options struct {
	receipts int
	ending   int // receipts beside those whose retention ends
	rounds   int
	span     time.Duration
	callers  int
	dir      string
	part     string
	empty    bool
	busy     bool
	profile  string
	url      string
	how      string
	resume   string
	from     int
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("large", flag.ContinueOnError)
	flags.IntVar(&o.receipts, "receipts", 10_000_000, "receipts that are kept")
	flags.IntVar(&o.ending, "ending", -1, "more receipts, whose retention ends; default: a tenth of those that are kept")
	flags.IntVar(&o.rounds, "rounds", 7, "rounds of what is compared; medians are printed")
	flags.DurationVar(&o.span, "span", 2*time.Second, "how long each side runs in a round")
	flags.IntVar(&o.callers, "callers", 64, "callers of what is compared")
	flags.StringVar(&o.dir, "dir", "", "where data is kept and removed again; default: the system's place for temporary files")
	flags.StringVar(&o.part, "part", "", "run one part in this process, on the data in -dir; the bench itself uses it")
	flags.BoolVar(&o.empty, "empty", false, "with -part: on the empty ledger")
	flags.BoolVar(&o.busy, "busy", false, "with -part: under load")
	flags.StringVar(&o.url, "url", "", "with -part callers: the node's")
	flags.StringVar(&o.how, "how", "", "with -part callers: behind the names of what is compared")
	flags.StringVar(&o.resume, "resume", "", "go on with the data that a killed run left in this directory; it is removed in the end")
	flags.IntVar(&o.from, "from", 0, "with -resume: receipts before this one are loaded already")
	flags.StringVar(&o.profile, "cpuprofile", "", "with -part: file for a CPU profile of it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.ending < 0 {
		o.ending = o.receipts / 10
	}
	if o.resume == "" && o.part == "" && o.from != 0 {
		return o, fmt.Errorf("-from goes with -resume")
	}
	if o.receipts < 10_000 || o.rounds < 1 || o.span <= 0 || o.callers < 1 {
		return o, fmt.Errorf("at least 10000 receipts, one round and one caller; a positive span")
	}
	return o, nil
}

// place is a new directory for the data, or the one that a killed run left.
func (o *options) place() (string, error) {
	if o.resume != "" {
		_, err := os.Stat(ledgerOf(filepath.Join(o.resume, "full")))
		return o.resume, err
	}
	return os.MkdirTemp(o.dir, "flightd-large-")
}

// parts run in processes of their own.
func parts() map[string]func(context.Context, options, *teller) error {
	return map[string]func(context.Context, options, *teller) error{
		"load": loadPart, "open": openPart, "ledgers": ledgersPart, "ending": endingPart, "node": nodePart, "nodes": nodesPart,
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
			return fmt.Errorf("-part %s: there is none", o.part)
		}
		if o.part != "callers" {
			node.Tune() // as flightd itself does
		}
		if o.profile == "" {
			return part(ctx, o, &teller{out: os.Stdout})
		}
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		err = part(ctx, o, &teller{out: os.Stdout})
		pprof.StopCPUProfile()
		return errors.Join(err, file.Close())
	}
	if o.dir, err = o.place(); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	return r.print(os.Stdout, o)
}

// The data directories of the two nodes that are compared, as flightd lays them out.
func (o *options) full() string   { return filepath.Join(o.dir, "full") }
func (o *options) hollow() string { return filepath.Join(o.dir, "empty") }

func (o *options) data() string {
	if o.empty {
		return o.hollow()
	}
	return o.full()
}

func ledgerOf(data string) string { return filepath.Join(data, "ledger") }

// measure runs all parts, one after the other.
func measure(ctx context.Context, o options) (*results, error) {
	r := new(results)
	for _, part := range []func(context.Context, options, *results) error{measureLoad, measureStarts, measureLedgers, measureEnding, measureNode, measureNodes} {
		if err := part(ctx, o, r); err != nil {
			return nil, err
		}
	}
	return r, nil
}
