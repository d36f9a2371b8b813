package protocolmodel

import (
	"fmt"
	"strings"
)

// label names a step of a run, with its caller, nonce or session.
type label struct {
	text string
	args [3]int8 // argument + 1; 0: none
}

func newLabel(text string, args ...int) label {
	l := label{text: text}
	for i, a := range args {
		l.args[i] = int8(a + 1)
	}
	return l
}

func (l label) String() string {
	var b strings.Builder
	b.WriteString(l.text)
	for _, a := range l.args {
		if a > 0 {
			fmt.Fprintf(&b, " %d", a-1)
		}
	}
	return b.String()
}

// labelTable numbers labels, so that a state keeps four bytes of its label.
type labelTable struct {
	numbers map[label]uint32
	labels  []label
}

func (t *labelTable) number(l label) uint32 {
	if n, ok := t.numbers[l]; ok {
		return n
	}
	if t.numbers == nil {
		t.numbers = map[label]uint32{}
	}
	n := uint32(len(t.labels))
	t.labels = append(t.labels, l)
	t.numbers[l] = n
	return n
}

func (t *labelTable) name(n uint32) string { return t.labels[n].String() }
