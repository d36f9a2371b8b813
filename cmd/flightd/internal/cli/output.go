package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/httpapi/wire"
)

// PrintData prints data as JSON or YAML, according to -o. Commands with a table print that themselves.
func (a *App) PrintData(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	text, err := a.DataText(data)
	if err == nil {
		_, err = fmt.Fprintln(a.Out, text)
	}
	return err
}

// DataText returns JSON as JSON or YAML, according to -o. The texts of callers in it cannot control the terminal, and decode
// to what they are.
func (a *App) DataText(data []byte) (string, error) {
	if a.Format == "yaml" {
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

// Say prints a message to standard error.
func (a *App) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Err, "flightd: %s\n", Message(fmt.Sprintf(format, args...)))
}

// Pluralize returns a number with its noun.
func Pluralize(n int, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return fmt.Sprintf("%d %s", n, plural)
}

// userInAddress matches user and password in the address of a server, which are credentials for a proxy in front of it.
var userInAddress = regexp.MustCompile(`(://)[^\s,"']*@`)

// HideUser removes user and password from the addresses in a text.
func HideUser(text string) string { return userInAddress.ReplaceAllString(text, "$1") }

// Message returns a message for a terminal, without control characters and without credentials.
func Message(text string) string { return Printable(HideUser(text)) }

// Printable replaces the control characters of a text from outside, except tabs and newlines, so that it cannot control the
// terminal.
func Printable(text string) string {
	return printable(text, "\t\n")
}

// printable replaces the control characters of a text, except those in kept, with spaces.
func printable(text, kept string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || strings.ContainsRune(kept, r) {
			return r
		}
		return ' '
	}, text)
}

// OneLine replaces newlines and control characters in foreign text, such as a provider's error, so that it stays on its
// line and cannot control the terminal.
func OneLine(s string) string { return printable(s, "") }

// WriteTable writes rows under a heading, in aligned columns.
func WriteTable(b *strings.Builder, heading []string, rows [][]string) {
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, strings.Join(heading, "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = OneLine(cell)
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // a builder returns no errors
}

// NamespaceText names a namespace for people.
func NamespaceText(namespace string) string {
	if namespace == wire.AllNamespaces {
		return "all namespaces"
	}
	return "namespace " + namespace
}

// ExpiryText describes when a token ends.
func ExpiryText(at time.Time) string {
	if at.IsZero() {
		return "never expires"
	}
	return "expires " + FormatTime(at)
}

// Print prints a result in the format of -o: its ids, one on each line, or its data as JSON or YAML, or else the text for people.
func (a *App) Print(data any, text func(b *strings.Builder), ids ...string) error {
	var b strings.Builder
	switch a.Format {
	case "json", "yaml":
		return a.PrintData(data)
	case "id":
		for _, id := range ids {
			b.WriteString(id + "\n")
		}
	default:
		text(&b)
	}
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// PrintList prints a list in the format of -o.
func (a *App) PrintList(heading []string, rows [][]string, ids []string, data any) error {
	return a.Print(data, func(b *strings.Builder) { WriteTable(b, heading, rows) }, ids...)
}

// PrintUnlessTable prints what a command did in a format for programs. In the format table, standard error has said it.
func (a *App) PrintUnlessTable(id string, data any) error {
	return a.Print(data, func(*strings.Builder) {}, id)
}

// PrintLine prints a line of text, or the data behind it in a format that has fields.
func (a *App) PrintLine(line string, data any) error { return a.Print(data, Text("%s\n", line), line) }

// Text returns a function for Print that writes a formatted text.
func Text(format string, args ...any) func(*strings.Builder) {
	return func(b *strings.Builder) { fmt.Fprintf(b, format, args...) }
}

// PrintDone confirms a decision about a named thing: in words on standard error, or in the format of -o.
func (a *App) PrintDone(done, namespace, name, what string) error {
	if a.Format == "table" {
		a.Say("%s", what)
	}
	return a.PrintUnlessTable(name, map[string]string{"done": done, "namespace": namespace, "name": name})
}

// PrintStreamed prints one element of a stream: as a line of JSON, as a document of YAML, or as the text.
func (a *App) PrintStreamed(data any, text string) error {
	if a.Format == "json" || a.Format == "yaml" {
		encoded, err := json.Marshal(data)
		if err == nil {
			text, err = a.DataText(encoded)
		}
		if err != nil {
			return err
		}
		if a.Format == "yaml" {
			text = "---\n" + text
		}
	}
	_, err := fmt.Fprintln(a.Out, text)
	return err
}

// Table describes a list of items of type T: the heading, and the cells and the id of each row.
type Table[T any] struct {
	Heading []string
	Row     func(item *T) (id string, cells []string)
}

// Print prints items in the format of -o. data is their form in JSON and YAML.
func (t Table[T]) Print(a *App, items []T, data any) error {
	rows, ids := make([][]string, len(items)), make([]string, len(items))
	for i := range items {
		ids[i], rows[i] = t.Row(&items[i])
	}
	return a.PrintList(t.Heading, rows, ids, data)
}

// ReadList reads the items of a list. data is their form in JSON and YAML.
type ReadList[T any] func(ctx context.Context, c *client.Client, args []string) (items []T, data any, err error)

// List returns the RunE of a command that reads items and prints them.
func (t Table[T]) List(a *App, read ReadList[T]) func(*cobra.Command, []string) error {
	return a.Run(func(ctx context.Context, c *client.Client, args []string) error {
		items, data, err := read(ctx, c, args)
		if err != nil {
			return err
		}
		return t.Print(a, items, data)
	})
}

// Pages reads pages until it has as many items as limit. next is the cursor of the next page, and empty after the last one.
func Pages[T any](limit, page int, cursor string, read func(cursor string, limit int) ([]T, string, error)) (all []T, next string, err error) {
	for all, next = []T{}, cursor; len(all) < limit; {
		var items []T
		if items, next, err = read(next, min(limit-len(all), page)); err != nil {
			return nil, "", err
		}
		if all = append(all, items...); next == "" {
			break
		}
	}
	return all, next, nil
}

// FormatTime returns a time in UTC, to the millisecond, or "" for the zero time.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// ChangeText describes when, by whom and why something was changed.
func ChangeText(at time.Time, by, reason string) string {
	return FormatTime(at) + " by " + OneLine(by) + ": " + OneLine(reason)
}

// LedgerText describes a ledger, so that a person notices the wrong one, as in "2,361 flights, newest 4 min ago, 10 in
// doubt".
func LedgerText(l *wire.LedgerInfo, now time.Time) string {
	if l.Empty {
		return "new and empty"
	}
	text := GroupDigits(l.Flights) + " flights"
	if l.Flights == 1 {
		text = "1 flight"
	}
	if !l.Newest.IsZero() {
		text += ", newest " + AgeText(now.Sub(l.Newest.Time)) + " ago"
	}
	if l.InDoubt > 0 {
		text += ", " + GroupDigits(l.InDoubt) + " in doubt"
	}
	return text
}

// AgeText rounds a duration down to whole seconds, minutes, hours or days.
func AgeText(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// GroupDigits writes a number with a comma before each group of three digits.
func GroupDigits[T int | int64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// OpenFile opens the file of a flag, or standard input for -.
func OpenFile(a *App, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.In), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, &Error{Code: ExitUsage, Err: err}
	}
	return file, nil
}

// ReadFile reads the file of a flag, or standard input for -. It rejects more than limit bytes.
func ReadFile(a *App, name string, limit int64) ([]byte, error) {
	from, err := OpenFile(a, name)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, &Error{Code: ExitUsage, Err: fmt.Errorf("read %s: %w", name, err)}
	}
	if int64(len(data)) > limit {
		return nil, UsageError("%s has more than %d bytes", name, limit)
	}
	return data, nil
}

// ReceiptBody returns the content type and the body of a receipt that a person or a command wrote. It removes the white space around
// JSON, such as a final newline, because the API transports a body as JSON only without it.
func ReceiptBody(text []byte) (contentType string, body []byte) {
	switch {
	case json.Valid(text):
		return "application/json", bytes.TrimSpace(text)
	case utf8.Valid(text):
		return "text/plain; charset=utf-8", text
	}
	return "application/octet-stream", text
}
