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

// print writes data as -o wants it: JSON or YAML. Commands that have a table write it themselves.
func (a *app) print(v any) error {
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

// say tells the person at the terminal something that is no data.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "flightd: "+format+"\n", args...)
}

// counted says how many there are of something.
func counted(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// oneLine is a text that others wrote, such as a provider's error, for a line of ours: what would end the line, or command
// the terminal, is a space.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// table writes rows under a heading, in columns.
func table(w io.Writer, heading []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, strings.Join(heading, "\t")) // Flush tells
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = oneLine(cell)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
