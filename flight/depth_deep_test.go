//go:build deep

package flight_test

// One command more: some minutes and some gigabytes. make explore runs it.
const shortDepth, fullDepth = 6, 7
