package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// printData prints data as JSON or YAML, according to -o. Commands with a table print that themselves.
func (a *app) printData(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	text, err := a.dataText(data)
	if err == nil {
		_, err = fmt.Fprintln(a.out, text)
	}
	return err
}

// dataText returns JSON as JSON or YAML, according to -o. The texts of callers in it cannot control the terminal, and decode
// to what they are.
func (a *app) dataText(data []byte) (string, error) {
	if a.format == "yaml" {
		return yamlText(data)
	}
	var b strings.Builder
	for _, r := range string(data) {
		if r < 0x7f || unicode.IsPrint(r) { // package json escapes the other control characters
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String(), nil
}

// yamlText converts JSON to YAML. A text with a control character, except newlines in a value, is quoted with its escape
// sequence.
func yamlText(data []byte) (string, error) {
	var v any
	if err := yaml.UnmarshalWithOptions(data, &v, yaml.UseOrderedMap()); err != nil {
		return "", err
	}
	node, err := yaml.ValueToNode(v)
	if err != nil {
		return "", err
	}
	ast.Walk(quoteControls{}, node)
	return node.String(), nil
}

// quoteControls is the ast.Visitor of yamlText.
type quoteControls struct{ key bool }

func (q quoteControls) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.MappingValueNode:
		ast.Walk(quoteControls{key: true}, n.Key)
	case *ast.StringNode:
		if strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) && (q.key || r != '\n') }) {
			n.Token.Type = token.DoubleQuoteType
		}
	}
	return quoteControls{}
}

// say prints a message to standard error.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, "flightd: %s\n", message(fmt.Sprintf(format, args...)))
}

// pluralize returns a number with its noun.
func pluralize(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// userInAddress matches user and password in the address of a server, which are credentials for a proxy in front of it.
var userInAddress = regexp.MustCompile(`(://)[^\s,"']*@`)

// hideUser removes user and password from the addresses in a text.
func hideUser(text string) string { return userInAddress.ReplaceAllString(text, "$1") }

// message returns a message for a terminal, without control characters and without credentials.
func message(text string) string { return printable(hideUser(text)) }

// printable replaces the control characters of a text from outside, except tabs and newlines, so that it cannot control the
// terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' || r == '\n' {
			return r
		}
		return ' '
	}, text)
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
