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

// results are all measurements.
type results struct {
	loadSeconds, loadHeap, loadMemory float64
	disk                              disk
	startsAfterStop, startsAfterKill  []float64
	compared                          map[string][]map[string]float64
	ended, endedSeconds               float64
	nodeStart                         float64
	nodeHeap, nodeResident, nodePeak  float64
}

const mebibyte = 1 << 20

// writeTable writes the table of the measurements and their limits.
func (r *results) writeTable(w io.Writer, o options) error {
	out := bufio.NewWriter(w)
	total := float64(o.receipts + o.ending)
	fmt.Fprintf(out, "%s; %d receipts of %d to %d random bytes, with inputs of %d to %d in base64, and %d more whose retention ends in the run; medians of %d rounds of %v.\n\n",
		describeHost(), o.receipts, bodyFrom, bodyTo, inputFrom, inputTo, o.ending, o.rounds, o.span)
	fmt.Fprint(out, "| metric | measured | limit |\n| --- | ---: | ---: |\n")
	row := func(name, limit, format string, args ...any) {
		fmt.Fprintf(out, "| %s | %s | %s |\n", name, fmt.Sprintf(format, args...), limit)
	}
	row("loaded through the ledger, an open and a report each", "", "%.0f/s", (total-float64(o.from))/r.loadSeconds)
	row("memory of the ledger while it is loaded: resident at most, heap", "1024 MiB", "%.0f MiB, %.0f MiB", r.loadMemory/mebibyte, r.loadHeap/mebibyte)
	row("memory of a whole node under load: resident at most, heap", "1024 MiB", "%.0f MiB, %.0f MiB", r.nodePeak/mebibyte, r.nodeHeap/mebibyte)
	row("start after a stop: process to first answer", "5 s", "%.2f s (%.2f to %.2f)", median(r.startsAfterStop), slices.Min(r.startsAfterStop), slices.Max(r.startsAfterStop))
	row("start after SIGKILL under load", "5 s", "%.2f s (%.2f to %.2f)", median(r.startsAfterKill), slices.Min(r.startsAfterKill), slices.Max(r.startsAfterKill))
	row("start of a whole node", "5 s", "%.2f s", r.nodeStart)
	r.compareRow(row, "new key, ledger", "1.3", ledgerFull, ledgerEmpty, "unit")
	r.compareRow(row, "new key, node", "1.3", nodeFull, nodeEmpty, "unit")
	for _, how := range [...]string{"", pinned} {
		r.compareRow(row, "replay over HTTP, random against hot, one caller"+how, "3", httpRandom+how, httpHot+how, "unit")
		r.compareRow(row, fmt.Sprintf("replay over HTTP, random against hot, %d callers%s", o.callers, how), "3", manyRandom+how, manyHot+how, "unit")
		r.compareRow(row, "replay in the process, random against hot, one caller"+how, "", replayRandom+how, replayHot+how, "unit")
	}
	r.compareRow(row, "receipt read from the ledger, random against hot, one caller", "", ledgerRandom, ledgerHot, "unit")
	row("disk per receipt", "", "%.0f bytes", r.disk.total()/total)
	for _, part := range [...]string{"state", "log", "snapshots"} {
		row("of that "+part, "", "%.0f bytes", r.disk[part]/total)
	}
	row("retentions ended beside new keys", "", "%.0f/s, %.0f in all", r.ended/r.endedSeconds, r.ended)
	for _, p := range [...]string{"median", "p99", "p999", "max"} {
		before, during := r.compared[idleLoad][0][p], r.compared[expiryLoad][0][p]
		row("new key's "+p+", before and while retentions end", "", "%.1f ms, %.1f ms", before*1e3, during*1e3)
	}
	return out.Flush()
}

// compareRow writes the ratio of two variants, computed per round.
func (r *results) compareRow(row func(name, limit, format string, args ...any), what, bar, mine, theirs, field string) {
	a, b := r.compared[mine], r.compared[theirs]
	var ratios, as, bs []float64
	for i := range min(len(a), len(b)) {
		ratios, as, bs = append(ratios, a[i][field]/b[i][field]), append(as, a[i][field]), append(bs, b[i][field])
	}
	if len(ratios) == 0 {
		return
	}
	row(what, bar, "%.2f (%.2f to %.2f): %.1f µs against %.1f µs", median(ratios), slices.Min(ratios), slices.Max(ratios), median(as)*1e6, median(bs)*1e6)
}

func median(values []float64) float64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
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
	return fmt.Sprintf("%s, %d cores, %s/%s, %s", model, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}
