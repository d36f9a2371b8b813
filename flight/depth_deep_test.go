//go:build deep

package flight_test

// TestExhaustive tries sequences that are one command longer than usual. That takes minutes and gigabytes; make explore
// does it.
const shortDepth, fullDepth = 6, 7
