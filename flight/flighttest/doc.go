// Package flighttest checks the rules of package flight independently of their implementation. It has a checker for single
// steps, which knows the invariants alone, and a linearizability model of the register that callers see. Tests of the rules
// and chaos runs over decoded logs use both.
package flighttest
