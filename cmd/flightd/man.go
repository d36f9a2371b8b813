package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man",
		Short:   "Write the manual page",
		Example: "  flightd man | man -l -",
		Hidden:  true, // packagers know
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m := manual{}
			m.page(cmd.Root())
			_, err := io.WriteString(a.out, m.String())
			return err
		},
	}
}

// manual is a page in the language of man(7), written from what the help knows.
type manual struct{ strings.Builder }

// escapeRoff keeps text from being taken for markup.
func escapeRoff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// line writes markup; the values are text.
func (m *manual) line(format string, values ...any) {
	for i, v := range values {
		if s, ok := v.(string); ok {
			values[i] = escapeRoff(s)
		}
	}
	fmt.Fprintf(m, format+"\n", values...)
}

// verbatim writes lines that stay as they are.
func (m *manual) verbatim(text string) {
	m.line(".nf")
	m.line("%s", strings.TrimRight(text, "\n"))
	m.line(".fi")
}

func (m *manual) page(root *cobra.Command) {
	m.line(`.TH FLIGHTD 1 "" "flightd %s" "User Commands"`, buildVersion())
	m.line(".SH NAME\nflightd \\- %s", "perform every business intent once per key")
	m.line(".SH SYNOPSIS\n.B flightd\n%s\n.RI [ flags ]", "COMMAND")
	m.line(".SH DESCRIPTION\n%s.", root.Short)
	m.line("Data goes to standard output, talk to standard error.")
	m.line(".SH EXAMPLES")
	m.verbatim(root.Example)
	m.line(".SH COMMANDS")
	for _, g := range root.Groups() {
		m.line(".SS %s", strings.TrimSuffix(g.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID == g.ID && c.IsAvailableCommand() {
				m.command(c)
			}
		}
	}
	m.line(".SH OPTIONS OF EVERY COMMAND")
	m.flags(root.PersistentFlags())
	m.line(".SH EXIT STATUS")
	for _, e := range exitCodes() {
		m.line(".TP\n.B %d\n%s", e.code, e.means)
	}
	m.settings()
	m.line(".SH SEE ALSO\n.BR flock (1),\n.BR systemd.service (5)")
}

// command writes a command, or those below it.
func (m *manual) command(c *cobra.Command) {
	if c.HasAvailableSubCommands() && !c.HasLocalFlags() {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				m.command(sub)
			}
		}
		return
	}
	m.line(".TP\n.B %s", strings.TrimPrefix(c.UseLine(), "flightd "))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			m.line(".IP")
		}
		if strings.HasPrefix(paragraph, "  ") {
			m.verbatim(paragraph)
			continue
		}
		m.line("%s", paragraph)
	}
	if c.Example != "" {
		m.line(".IP")
		m.verbatim(c.Example)
	}
	if c.HasAvailableLocalFlags() {
		m.line(".RS")
		m.flags(c.LocalFlags())
		m.line(".RE")
	}
}

func (m *manual) flags(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		kind, about := pflag.UnquoteUsage(f)
		if kind != "" {
			kind = " " + kind
		}
		m.line(".TP\n.BI \"%s\" \"%s\"\n%s", name, kind, about)
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "0s" && d != "[]" {
			m.line("(default %s)", d)
		}
	})
}

func (m *manual) settings() {
	m.line(".SH ENVIRONMENT\nFlags come before the environment, the environment before the file, the file before the defaults.")
	for _, s := range settings() {
		m.line(".TP\n.B %s\n%s (--%s; in the file %s; default %s)", s.env, s.about, s.flag, s.name, s.unsaid())
	}
	m.line(".SH FILES\n.TP\n.I %s\nthe settings; %s where XDG_CONFIG_HOME is not set", "$XDG_CONFIG_HOME/flightd/config.yaml", "~/.config/flightd/config.yaml")
	m.line(".TP\n.I %s\nreports that no server has taken yet; %s where XDG_STATE_HOME is not set", "$XDG_STATE_HOME/flightd/reports", "~/.local/state/flightd/reports")
}
