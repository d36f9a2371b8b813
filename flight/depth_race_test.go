//go:build race && !deep

package flight_test

// Pure functions have no data races, so the race detector runs only a few sequences.
const shortDepth, fullDepth = 3, 4
