package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// The workloads that are the base of ratios.
const (
	rawBatched     = "raw path, batched"
	rawUnbatched   = "raw path, unbatched"
	postgresByHand = "Postgres ledger by hand"
)

// writeTable writes the table and, below it, the ratios.
func writeTable(w io.Writer, o options, all []workload, results map[cell][]measurement) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s; medians of %d rounds of %v.\n\n", describeHost(), o.rounds, o.span)
	fmt.Fprint(out, "| path |")
	for _, n := range o.callers {
		fmt.Fprintf(out, " %s, per second |", count(n))
	}
	fmt.Fprintf(out, " median with %s | p99 with %s | processor | objects |\n| --- |%s\n",
		count(o.callers[0]), count(o.callers[len(o.callers)-1]), strings.Repeat(" ---: |", len(o.callers)+4))
	for _, c := range all {
		row(out, o, c, results)
	}
	fmt.Fprintf(out, "\n*Processor* and *objects* are the CPU time and the allocations of the whole process, with the load, per unit with %s.\n\n",
		count(o.callers[len(o.callers)-1]))
	ratios(out, o, all, results)
	return out.Flush()
}

func row(out io.Writer, o options, c workload, results map[cell][]measurement) {
	fmt.Fprintf(out, "| %s |", c.name)
	for _, n := range o.callers {
		fmt.Fprintf(out, " %s |", number(results[cell{c.name, n}], func(f measurement) float64 { return f.perSecond }, "%.0f"))
	}
	first, last := o.callers[0], o.callers[len(o.callers)-1]
	fmt.Fprintf(out, " %s |", number(results[cell{c.name, first}], func(f measurement) float64 { return ms(f.median) }, "%.3f ms"))
	fmt.Fprintf(out, " %s |", number(results[cell{c.name, last}], func(f measurement) float64 { return ms(f.p99) }, "%.1f ms"))
	fmt.Fprintf(out, " %s |", number(results[cell{c.name, last}], func(f measurement) float64 { return us(f.processor) }, "%.0f µs"))
	fmt.Fprintf(out, " %s |\n", number(results[cell{c.name, last}], func(f measurement) float64 { return f.allocated }, "%.0f"))
}

func number(fs []measurement, value func(measurement) float64, format string) string {
	if len(fs) == 0 {
		return ""
	}
	return fmt.Sprintf(format, median(fs, value))
}

func median(fs []measurement, value func(measurement) float64) float64 {
	values := make([]float64, len(fs))
	for i, f := range fs {
		values[i] = value(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// ratios compares rate and median latency with the raw path and the hand-written ledger.
func ratios(out io.Writer, o options, all []workload, results map[cell][]measurement) {
	for _, c := range all {
		for _, base := range []string{rawBatched, rawUnbatched, postgresByHand} {
			if c.name == base || c.note == "" {
				continue
			}
			for _, n := range o.callers {
				ratio(out, c, base, n, results)
			}
		}
	}
}

func ratio(out io.Writer, c workload, base string, callers int, results map[cell][]measurement) {
	mine, theirs := results[cell{c.name, callers}], results[cell{base, callers}]
	if len(mine) == 0 || len(mine) != len(theirs) {
		return
	}
	var rate, latency []float64
	for i := range mine {
		rate = append(rate, mine[i].perSecond/theirs[i].perSecond)
		latency = append(latency, float64(mine[i].median)/float64(theirs[i].median))
	}
	slices.Sort(rate)
	slices.Sort(latency)
	fmt.Fprintf(out, "- %s against %s, %s: %.2f of its rate (%.2f to %.2f), %.2f of its median latency\n",
		c.name, base, count(callers), rate[len(rate)/2], rate[0], rate[len(rate)-1], latency[len(latency)/2])
}

func count(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

// describeHost returns the processor, the number of cores, the platform and the Go version.
func describeHost() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, ok := strings.CutPrefix(line, "model name"); ok {
				model = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores (GOMAXPROCS %d), %s/%s, %s", model, runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
