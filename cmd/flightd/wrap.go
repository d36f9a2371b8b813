package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// terminalWidth returns the width of the terminal in columns; 0: w is not a terminal, or its width is unknown.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// wrap wraps a help text, which is written for 120 columns, for a terminal of this width. Paragraphs are refilled,
// other lines continue at their hanging indent, and examples are not changed, so that they can be copied.
func wrap(text string, width int) string {
	if width < 40 || width >= 120 { // too narrow, or wide enough
		return text
	}
	var out []string
	examples, open := false, false // open: the last line belongs to a paragraph that the next line may continue
	for line := range strings.SplitSeq(text, "\n") {
		unindented := line != "" && line[0] != ' '
		if unindented {
			examples = line == "Examples:"
		}
		if last := len(out) - 1; unindented && open {
			line = out[last] + " " + line
			out = out[:last]
		}
		open = unindented && !strings.HasSuffix(line, ":")
		if examples {
			out = append(out, line)
			continue
		}
		out = append(out, wrapLine(line, width)...)
	}
	return strings.Join(out, "\n")
}

// wrapLine splits a line at spaces into lines that fit. A word that is too long is not split.
func wrapLine(line string, width int) (lines []string) {
	indent := hangingIndent(line)
	if indent > width-30 { // too little width would be left
		indent = 4
	}
	rest := []rune(line)
	for len(rest) > width {
		at := width
		for at > indent && rest[at] != ' ' {
			at--
		}
		if at <= indent {
			break
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.Repeat(" ", indent) + strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}

// hangingIndent returns the column at which a line is continued: after the gap of two spaces between a name and its
// description, else at the line's own indent.
func hangingIndent(line string) int {
	text := strings.TrimLeft(line, " ")
	begin := len(line) - len(text)
	name, about, parted := strings.Cut(text, "  ")
	if !parted {
		return begin
	}
	gap := len(about) - len(strings.TrimLeft(about, " "))
	return begin + len(name) + 2 + gap
}
