package main

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// colour is an escape sequence of a terminal.
type colour string

const (
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	plain  colour = "\x1b[0m"
)

// paint colours a word for a terminal that shows it; it goes to files and pipes as it is.
func (a *app) paint(w io.Writer, c colour, word string) string {
	unasked := a.decided == nil && a.env("NO_COLOR") != "" // nothing else could be settled
	if a.noColor || unasked || a.env("TERM") == "dumb" || !isTerminal(w) {
		return word
	}
	return string(c) + word + string(plain)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
