// Package proctest runs programs for process tests: it starts them, waits until they are ready, kills, freezes and stops them,
// and shows what they logged when a test fails.
//
// It does not import package testing, because flightd drill is such a test.
//
// On Linux the kernel kills the programs when the test process dies, however it dies.
package proctest
