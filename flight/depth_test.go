//go:build !deep && !race

package flight_test

// How many commands stand in a sequence of TestExhaustive; with -short, and otherwise. Build tag deep goes further.
const shortDepth, fullDepth = 4, 6
