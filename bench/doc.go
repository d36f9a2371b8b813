// Bench measures what a flight costs, in one run and on one machine: the raw path of its three durable writes beside
// the executor, the HTTP interface and replays, and beside those the ledger that people write by hand on Postgres. The
// rooms below the executor stand beside them, alone and one after the other, and requests that do nothing (floor.go): what
// a flight cannot cost less than.
//
//	go run ./bench                                       the table of docs/performance.md
//	go run ./bench -postgres 'host=/tmp user=postgres'   with the Postgres ledger in it
//
// Every figure is the median of several rounds, and in each round every contestant runs once, so that a machine whose
// speed drifts drifts for all of them. Ratios are taken round by round.
package main
