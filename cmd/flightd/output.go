package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/goccy/go-yaml"
)

// printData prints data as JSON or YAML, according to -o. Commands with a table print that themselves.
func (a *app) printData(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if a.format == "yaml" {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(a.out, strings.TrimRight(string(data), "\n"))
	return err
}

// say prints a message to standard error.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "flightd: "+format+"\n", args...)
}

// pluralize returns a number with its noun.
func pluralize(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// oneLine replaces newlines and control characters in foreign text, such as a provider's error, so that it stays on its
// line and cannot control the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// writeTable prints rows under a heading, in aligned columns.
func writeTable(w io.Writer, heading []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, strings.Join(heading, "\t")) // Flush returns the error
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = oneLine(cell)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
