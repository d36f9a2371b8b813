package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Colour is a terminal escape sequence.
type Colour string

const (
	Red    Colour = "\x1b[31m"
	Green  Colour = "\x1b[32m"
	Yellow Colour = "\x1b[33m"
	reset  Colour = "\x1b[0m"
)

// Paint colours a word if w is a terminal and colours are wanted.
func (a *App) Paint(w io.Writer, c Colour, word string) string {
	unresolved := a.Values == nil && a.Env("NO_COLOR") != "" // the settings could not be resolved
	if a.noColor || unresolved || a.Env("TERM") == "dumb" || !isTerminal(w) {
		return word
	}
	return string(c) + word + string(reset)
}

// OnTerminal reports whether messages go to a terminal.
func (a *App) OnTerminal() bool { return isTerminal(a.Err) }

// OutOnTerminal reports whether results go to a terminal.
func (a *App) OutOnTerminal() bool { return isTerminal(a.Out) }

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
