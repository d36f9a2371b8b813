// Package flighttest judges the rules of package flight from outside: a checker for single steps, which knows the
// invariants and nothing of how Apply keeps them, and a linearizability model of the register that callers see. Tests
// of the rules and chaos runs over decoded logs use the same ones.
package flighttest
