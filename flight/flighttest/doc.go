// Package flighttest checks single steps of the rules of package flight independently of their implementation: it knows the
// invariants alone.
package flighttest
