//go:build race && !deep

package flight_test

// The race detector finds nothing in pure functions; it runs a few sequences for form's sake.
const shortDepth, fullDepth = 3, 4
