package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/internal/proctest"
	"github.com/flightd/flightd/node"
)

// part is a part of a large ledger's measurement, in a process of its own.
type part struct {
	name string
	run  func(ctx context.Context, o *options, r *report) error
}

// steps are the parts with rows of the table, in their order.
func steps() []part {
	return []part{{"load", loadPart}, {"start", startPart}, {"ledger", ledgerPart}, {"retention", retentionPart}, {"memory", memoryPart}, {"node", nodePart}}
}

func stepNames() (names []string) {
	for _, s := range steps() {
		names = append(names, s.name)
	}
	return names
}

// report has the results of a part.
type report struct {
	Rows    [][]string // of the table
	Results results
	Seconds float64 // of openPart
}

// runPart runs a part in this process, and writes its report as one line.
func runPart(ctx context.Context, o *options) error {
	all := append(steps(), part{"open", openPart}, part{"busy", busyPart}, part{"callers", callersPart})
	n := slices.IndexFunc(all, func(p part) bool { return p.name == o.large.part })
	if n < 0 {
		return fmt.Errorf("-part %s: unknown part", o.large.part)
	}
	if o.large.part != "callers" {
		node.Tune(&node.Config{}) // as flightd itself does
	}
	r := &report{Results: make(results)}
	if err := profiled(o, func() error { return all[n].run(ctx, o, r) }); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// start starts the process of a part, with this process's options and further ones.
func (o *options) start(part string, line func(string), more ...string) (*proctest.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := slices.Concat(o.args, []string{"-dir", o.dir, "-part", part}, more)
	return proctest.Start(proctest.Spec{Name: "part " + part, Path: program, Args: args, Env: os.Environ(), Line: line, ReadyTimeout: time.Hour, Start: withStderr})
}

// collect runs a part in a process of its own and returns its report.
func (o *options) collect(ctx context.Context, part string, more ...string) (r report, err error) {
	var text string
	p, err := o.start(part, func(line string) { text = line }, more...)
	if err != nil {
		return r, err
	}
	defer p.Kill()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		return r, ctx.Err()
	}
	if err := p.Stop(time.Second); err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(text), &r)
}

// measureLarge loads a large ledger, runs all steps or the selected one, and writes the table of the measurements and their limits.
func measureLarge(ctx context.Context, o *options, out io.Writer) error {
	rows := [][]string{{"metric", "measured", "limit"}}
	for _, s := range steps() {
		if s.name == "load" || strings.Contains(s.name, o.only) {
			r, err := o.collect(ctx, s.name)
			if err != nil {
				return err
			}
			rows = append(rows, r.Rows...)
		}
	}
	fmt.Fprintf(out, "%s; %d receipts of %d to %d random bytes, with inputs of %d to %d in base64, and %d more whose retention ends in the run; medians of %d rounds of %v.\n\n",
		describeHost(), o.large.stored, bodyFrom, bodyTo, inputFrom, inputTo, o.large.ending, o.rounds, o.span)
	return writeTable(out, rows)
}

// The data directories of the two nodes that are compared.
func (o *options) fullDir() string  { return filepath.Join(o.dir, "full") }
func (o *options) emptyDir() string { return filepath.Join(o.dir, "empty") }

func ledgerOf(data string) string { return filepath.Join(data, "ledger") }

// many is the number of callers of a large ledger.
func (o *options) many() int { return o.callers[len(o.callers)-1] }

// row adds a row of the table. limit may be "".
func (r *report) row(what, limit, format string, args ...any) {
	r.Rows = append(r.Rows, []string{what, fmt.Sprintf(format, args...), limit})
}

// memoryRow adds a row of this process's memory.
func (r *report) memoryRow(what string) {
	const mebibyte = 1 << 20
	used := currentUsage()
	r.row(what+": resident at most, heap", "1024 MiB", "%d MiB, %d MiB", used.peak/mebibyte, used.heap/mebibyte)
}

// compare measures two workloads in turn with this number of callers.
func (r *report) compare(ctx context.Context, o *options, callers int, a, b workload) error {
	with := *o
	with.callers = []int{callers}
	return r.Results.measure(ctx, &with, a, b)
}

// ratioRow adds a row of the ratio of the times per unit of two workloads that were compared.
func (r *report) ratioRow(what, limit, a, b string, callers int) {
	unit := func(m measurement) float64 { return 1e6 / m.Rate }
	as, bs := r.Results[a][callers], r.Results[b][callers]
	if len(as) > 0 {
		r.row(what, limit, "%s: %.1f µs against %.1f µs", spread(ratios(as, bs, unit), ""), median(valuesOf(as, unit)), median(valuesOf(bs, unit)))
	}
}

// startPart measures the start after a stop, and the start after the process was killed under load, several times.
func startPart(ctx context.Context, o *options, r *report) error {
	var stopped, killed []float64
	for range 3 {
		clean, err := o.collect(ctx, "open")
		if err != nil {
			return err
		}
		busy, err := o.start("busy", nil)
		if err != nil {
			return err
		}
		if _, err = busy.AwaitReady(ctx); err == nil {
			time.Sleep(3 * time.Second) // the load must run for a while before the kill
		}
		busy.Kill()
		crashed, failed := o.collect(ctx, "open")
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		stopped, killed = append(stopped, clean.Seconds), append(killed, crashed.Seconds)
	}
	r.row("start after a stop: process to first answer", "5 s", "%s", spread(stopped, " s"))
	r.row("start after SIGKILL under load", "5 s", "%s", spread(killed, " s"))
	return nil
}
