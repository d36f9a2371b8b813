// Package proctest runs programs for process tests: it starts them, waits until they are ready, kills, freezes and stops them,
// and shows what they logged when a test fails.
//
// On Linux the kernel kills the programs when the test process dies, however it dies.
package proctest
