package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// writeTable writes a table in Markdown. All columns but the first are aligned to the right.
func writeTable(out io.Writer, rows [][]string) error {
	_, err := fmt.Fprintf(out, "| %s |\n| --- |%s\n", strings.Join(rows[0], " | "), strings.Repeat(" ---: |", len(rows[0])-1))
	for _, row := range rows[1:] {
		_, failed := fmt.Fprintf(out, "| %s |\n", strings.Join(row, " | "))
		err = errors.Join(err, failed)
	}
	return err
}

// writeFlights writes the table of all workloads and, below it, the ratios of their rates and median latencies to those of the raw path
// and the hand-written ledger.
func writeFlights(out io.Writer, o *options, all []workload, r results) error {
	first, last := o.callers[0], o.callers[len(o.callers)-1]
	header := []string{"path"}
	for _, n := range o.callers {
		header = append(header, count(n)+", per second")
	}
	rows := [][]string{append(header, "median with "+count(first), "p99 with "+count(last), "processor", "objects")}
	for _, w := range all {
		figure := func(callers int, format string, value func(measurement) float64) string {
			return fmt.Sprintf(format, median(valuesOf(r[w.name][callers], value)))
		}
		row := []string{w.name}
		for _, n := range o.callers {
			row = append(row, figure(n, "%.0f", rate))
		}
		rows = append(rows, append(row,
			figure(first, "%.3f ms", func(m measurement) float64 { return ms(m.Median) }),
			figure(last, "%.1f ms", func(m measurement) float64 { return ms(m.P99) }),
			figure(last, "%.0f µs", func(m measurement) float64 { return us(m.Processor) }),
			figure(last, "%.0f", func(m measurement) float64 { return m.Objects })))
	}
	fmt.Fprintf(out, "%s; medians of %d rounds of %v.\n\n", describeHost(), o.rounds, o.span)
	err := writeTable(out, rows)
	fmt.Fprintf(out, "\n*Processor* and *objects* are the CPU time and the allocations of the whole process, with the load, per unit with %s.\n\n", count(last))
	for _, w := range all {
		bases := []string{w.byHand}
		if w.newKeys {
			bases = append(bases, rawBatched, rawUnbatched, postgresByHand)
		}
		for _, base := range bases {
			for _, n := range o.callers {
				if a, b := r[w.name][n], r[base][n]; base != w.name && len(b) > 0 {
					latency := median(ratios(a, b, func(m measurement) float64 { return ms(m.Median) }))
					fmt.Fprintf(out, "- %s against %s, %s: %s of its rate, %.2f of its median latency\n", w.name, base, count(n), spread(ratios(a, b, rate), ""), latency)
				}
			}
		}
	}
	return err
}

func rate(m measurement) float64 { return m.Rate }

func valuesOf(all []measurement, value func(measurement) float64) (values []float64) {
	for _, m := range all {
		values = append(values, value(m))
	}
	return values
}

// ratios returns the ratio of two workloads' values in each round.
func ratios(a, b []measurement, value func(measurement) float64) (all []float64) {
	for i := range a {
		all = append(all, value(a[i])/value(b[i]))
	}
	return all
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// spread describes values by their median, the least and the greatest, with their unit.
func spread(values []float64, unit string) string {
	return fmt.Sprintf("%.2f%s (%.2f to %.2f)", median(values), unit, slices.Min(values), slices.Max(values))
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
