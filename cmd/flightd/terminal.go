package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// colour is a terminal escape sequence.
type colour string

const (
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	reset  colour = "\x1b[0m"
)

// paint colours a word if w is a terminal and colours are wanted.
func (a *app) paint(w io.Writer, c colour, word string) string {
	unresolved := a.settings == nil && a.env("NO_COLOR") != "" // the settings could not be resolved
	if a.noColor || unresolved || a.env("TERM") == "dumb" || !isTerminal(w) {
		return word
	}
	return string(c) + word + string(reset)
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
