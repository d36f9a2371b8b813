package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// columns is how wide the terminal is; 0 where there is none, or it does not say.
func columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// narrowed is a help text for a terminal of so many columns. Help is written for 120: what does not fit is broken at its
// spaces and goes on below what it says, paragraphs are filled anew, and examples stay as they are, to be copied.
func narrowed(text string, width int) string {
	if width < 40 || width >= 120 { // nothing sensible fits, or all of it
		return text
	}
	var out []string
	examples, open := false, false // open: the last line is a paragraph's, and the next one may go on there
	for line := range strings.SplitSeq(text, "\n") {
		flush := line != "" && line[0] != ' '
		if flush {
			examples = line == "Examples:"
		}
		if last := len(out) - 1; flush && open {
			line = out[last] + " " + line
			out = out[:last]
		}
		open = flush && !strings.HasSuffix(line, ":")
		if examples {
			out = append(out, line)
			continue
		}
		out = append(out, wrapped(line, width)...)
	}
	return strings.Join(out, "\n")
}

// wrapped is a line as several that fit. What cannot be broken stays.
func wrapped(line string, width int) (lines []string) {
	hang := hanging(line)
	if hang > width-30 { // too little would be left
		hang = 4
	}
	rest := []rune(line)
	for len(rest) > width {
		at := width
		for at > hang && rest[at] != ' ' {
			at--
		}
		if at <= hang {
			break
		}
		lines = append(lines, strings.TrimRight(string(rest[:at]), " "))
		rest = []rune(strings.Repeat(" ", hang) + strings.TrimLeft(string(rest[at:]), " "))
	}
	return append(lines, string(rest))
}

// hanging is where a line goes on below itself: behind the gap of two spaces that parts a name from what is said about it,
// else where it begins.
func hanging(line string) int {
	text := strings.TrimLeft(line, " ")
	begin := len(line) - len(text)
	name, about, parted := strings.Cut(text, "  ")
	if !parted {
		return begin
	}
	gap := len(about) - len(strings.TrimLeft(about, " "))
	return begin + len(name) + 2 + gap
}
