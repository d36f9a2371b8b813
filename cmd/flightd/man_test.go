package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestMan_TellsEveryCommandFlagAndCode, and nothing of it is taken for markup that it is not.
func TestMan_TellsEveryCommandFlagAndCode(t *testing.T) {
	r := cli(nil, "man")
	if r.code != 0 || r.err != "" {
		t.Fatalf("%v", r)
	}
	for _, c := range commands(t) {
		if c.HasSubCommands() && !c.HasLocalFlags() {
			continue
		}
		if want := ".B " + escapeRoff(strings.TrimPrefix(c.UseLine(), "flightd ")); !strings.Contains(r.out, want+"\n") {
			t.Errorf("nothing about %s", c.CommandPath())
		}
	}
	for _, e := range exitCodes() {
		if !strings.Contains(r.out, fmt.Sprintf(".B %d\n", e.code)) {
			t.Errorf("nothing about exit code %d", e.code)
		}
	}
	for _, s := range settings() {
		if !strings.Contains(r.out, ".B "+s.env+"\n") {
			t.Errorf("nothing about %s", s.env)
		}
	}
	markup := regexp.MustCompile(`^\.(TH|SH|SS|TP|IP|B|BI|BR|RI|I|RS|RE|nf|fi)( |$)`)
	escape := regexp.MustCompile(`\\(e|-|&|\((aq|ga|ha|ti))`)
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(line, ".") && !markup.MatchString(strings.TrimSpace(line)) || strings.HasPrefix(line, "'") {
			t.Errorf("markup that is none: %q", line)
		}
		if strings.Contains(escape.ReplaceAllString(line, ""), `\`) {
			t.Errorf("an escape that is none: %q", line)
		}
	}
	if got := escapeRoff(".x\n'y\\n"); got != "\\&.x\n\\(aqy\\en" {
		t.Errorf("escaped is %q", got)
	}
}
