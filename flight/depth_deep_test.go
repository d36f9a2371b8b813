//go:build deep

package flight_test

// One command more: some minutes and some gigabytes. make test-deep runs it.
const shortDepth, fullDepth = 6, 7
