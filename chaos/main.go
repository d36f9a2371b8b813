// Command chaos tears a cluster of flightd apart and judges what has happened: see README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/flightd/flightd/chaos/cluster"
	"github.com/flightd/flightd/chaos/netbed"
	"github.com/flightd/flightd/chaos/plant"
	"github.com/flightd/flightd/chaos/report"
)

func main() {
	if isPart, err := cluster.RunPart(os.Stdin, os.Stdout); isPart {
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Stdout)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// run returns the status with which the program ends: 1 when a promise was broken, 2 when the run could not be carried out.
func run(ctx context.Context, out io.Writer) (code int, err error) {
	opts := &cluster.Options{Output: out}
	flags := flag.CommandLine
	flags.Uint64Var(&opts.Seed, "seed", 0, "of everything that is chosen by chance; 0: a new one")
	flags.StringVar(&opts.Flightd, "flightd", "", "path of the flightd under test; none: it is built")
	flags.IntVar(&opts.Nodes, "nodes", 3, "number of nodes: 3 or 5")
	flags.BoolVar(&opts.OwnEtcd, "own-etcd", false, "etcd runs in three processes on hosts of its own, instead of in the nodes")
	flags.DurationVar(&opts.For, "for", 10*time.Minute, "how long faults happen")
	flags.IntVar(&opts.Load.Callers, "callers", 32, "number of callers, a third of them in each language")
	flags.DurationVar(&opts.Load.Pause, "pause", 600*time.Millisecond, "mean pause of a caller between two keys")
	flags.IntVar(&opts.Load.Workers, "workers", 6, "number of workers")
	flags.IntVar(&opts.Load.Jobs, "jobs", 0, "number of jobs; 0: three a second")
	flags.IntVar(&opts.Load.Sagas, "sagas", 0, "number of sagas; 0: one each two seconds")
	flags.IntVar(&opts.Load.Slow, "slow", 1, "how many times as slow as a quiet one of two cores this machine may be: the limits of recovery are multiplied by it")
	flags.IntVar(&opts.Together, "together", 3, "most faults at once")
	flags.BoolVar(&opts.Lock, "lock", false, "compare jobs in lanes with a mutex of etcd, under workers that stand still, instead of all workloads and faults")
	flags.BoolVar(&opts.Loopback, "loopback", false, "run without root, in a user namespace: disks are of memory, and the faults that need a device are named and do not happen")
	kinds := flags.String("faults", "", "parts of the names of the faults that may happen, with commas between; none: all")
	flags.StringVar(&opts.Keep, "keep", "", "directory for the data and the logs of a run that fails; none: that for temporary files")
	page := flags.String("report", "", "file for the report, one HTML page, which is written also when promises are broken; none: no report")
	planted := flags.String("plant", "", "plant the bugs whose names contain one of these words, with commas between, one at a time, and require that each is found; all: every one; list: print their names")
	flag.Parse()
	if *planted == "list" {
		for i := range plant.Bugs {
			_, _ = fmt.Fprintln(out, plant.Bugs[i].Name)
		}
		return 0, nil
	}
	if opts.Loopback {
		if err := netbed.BecomeRoot(); err != nil {
			return 2, err
		}
	}
	if *kinds != "" {
		opts.Kinds = strings.Split(*kinds, ",")
	}
	for opts.Seed == 0 {
		opts.Seed = rand.Uint64N(1_000_000)
	}
	if opts.Load.Jobs == 0 {
		opts.Load.Jobs = int(opts.For.Seconds() * 3)
	}
	opts.Timeout = 6 * time.Minute
	if opts.Load.Sagas == 0 {
		opts.Load.Sagas = int(opts.For.Seconds() / 2)
	}
	if opts.Self, err = os.Executable(); err != nil {
		return 2, err
	}
	if opts.Source, err = sourceRoot(); err != nil {
		return 2, err
	}
	var draft *os.File // of the report: a wrong path ends the program before the run, and an older report stays until this one is whole
	if *page != "" {
		if draft, err = os.CreateTemp(filepath.Dir(*page), ".report-*"); err != nil {
			return 2, fmt.Errorf("write the report: %w", err)
		}
		defer os.Remove(draft.Name())
		defer draft.Close()
	}
	if opts.Flightd == "" {
		dir, err := os.MkdirTemp("", "flightd-chaos-build-")
		if err != nil {
			return 2, err
		}
		defer os.RemoveAll(dir)
		opts.Flightd = filepath.Join(dir, "flightd")
		build := exec.CommandContext(ctx, "go", "build", "-C", opts.Source, "-o", opts.Flightd, "./cmd/flightd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		build.Stdout, build.Stderr = os.Stdout, os.Stderr
		if err := build.Run(); err != nil {
			return 2, fmt.Errorf("build flightd: %w", err)
		}
	}
	if *planted != "" {
		if err := runPlanted(ctx, opts, strings.Split(*planted, ","), out); err != nil {
			return 1, err
		}
		return 0, nil
	}
	result, err := cluster.Run(ctx, opts)
	var unwritten error
	if draft != nil && result != nil {
		result.Command, result.Version = cmp.Or(result.Command, repeat(flags, opts.Seed)), cmp.Or(result.Version, version(context.WithoutCancel(ctx), opts))
		if unwritten = report.Write(draft, result); unwritten == nil {
			unwritten = errors.Join(draft.Chmod(0o644), os.Rename(draft.Name(), *page))
		}
	}
	if err != nil {
		return 2, errors.Join(err, unwritten)
	}
	printResult(out, result)
	if result.Broken() > 0 {
		return 1, errors.Join(fmt.Errorf("%d violations; repeat it with -seed %d", result.Broken(), opts.Seed), unwritten)
	}
	if unwritten != nil {
		return 2, unwritten
	}
	return 0, nil
}

// printResult prints what a run has done, and the judgement of each promise.
func printResult(out io.Writer, result *report.Result) {
	faults, kindsSeen := result.Bitten()
	_, _ = fmt.Fprintf(out, "%d faults of %d kinds had an effect; %d did not\n", faults, kindsSeen, len(result.Faults)-faults)
	for _, w := range result.Workloads {
		_, _ = fmt.Fprintf(out, "%-30s %7d operations %7d effects  %s\n", w.Name, w.Operations, w.Effects, w.Text)
	}
	for _, i := range result.Invariants {
		found := "holds"
		if len(i.Violations) > 0 {
			found = fmt.Sprintf("BROKEN %d times", len(i.Violations))
		}
		_, _ = fmt.Fprintf(out, "%-16s %-16s %7d checked  %s\n", i.Name, found, i.Checked, i.Promise)
		for n, v := range i.Violations {
			if n == 10 {
				_, _ = fmt.Fprintf(out, "    and %d more\n", len(i.Violations)-n)
				break
			}
			_, _ = fmt.Fprintf(out, "    %s: %s\n", v.Key, v.Text)
		}
	}
}

// repeat returns the command that repeats a run, without the paths of this machine.
func repeat(flags *flag.FlagSet, seed uint64) string {
	command := fmt.Sprintf("go run -C chaos . -seed=%d", seed)
	flags.Visit(func(f *flag.Flag) {
		switch value := f.Value.String(); {
		case f.Name == "seed" || f.Name == "report" || f.Name == "keep" || f.Name == "flightd":
		case strings.ContainsAny(value, " '\"$`"):
			command += fmt.Sprintf(" -%s='%s'", f.Name, strings.ReplaceAll(value, "'", `'\''`))
		default:
			command += fmt.Sprintf(" -%s=%s", f.Name, value)
		}
	})
	return command
}

// version returns what the flightd under test says of itself, and the commit of the sources; what cannot be found out is missing.
func version(ctx context.Context, opts *cluster.Options) string {
	said, _ := exec.CommandContext(ctx, opts.Flightd, "version").Output()
	commit, _ := exec.CommandContext(ctx, "git", "-C", opts.Source, "describe", "--always", "--dirty").Output()
	return strings.Join(strings.Fields(string(said)+" "+string(commit)), " ")
}

// sourceRoot returns the root of the repository, in which the program must be started.
func sourceRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd/flightd")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = fmt.Errorf("start it inside the repository of flightd")
			return "", err
		}
	}
	return "", err
}
