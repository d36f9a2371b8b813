// Package storetest holds the conformance suites for the stores of package clusterstore and their fakes, and
// in-memory ledgers for the tests of other packages.
package storetest
