//go:build !deep && !race

package flight_test

// The number of commands in a sequence of TestExhaustive, with -short and otherwise. Build tag deep uses a longer sequence.
const shortDepth, fullDepth = 5, 6
