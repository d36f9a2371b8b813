// Package storetest holds the exams that the stores of package clusterstore and their doubles must pass, and ledgers
// that live in memory for other packages' tests.
package storetest
