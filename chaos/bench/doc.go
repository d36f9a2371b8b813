// Bench measures flightd on one machine. make bench builds it.
//
//	bin/bench                                       the cost of a flight: the table of docs/performance.md
//	bin/bench -postgres 'host=/tmp user=postgres'   with the Postgres ledger in it
//	bin/bench -three bin/flightd                    one process beside three that are one cluster
//	bin/bench -stored 10000000                      a large ledger; about a quarter of an hour and 30 GB of disk
//	bin/bench -stored 2000000 -only start           only the starts of one
//
// The cost of a flight is measured beside the raw path of its three durable writes, the layers below the executor,
// requests to an empty server (baseline.go), and a hand-written ledger on Postgres.
//
// Every figure is the median of several rounds. In each round every workload runs once, in an order that rotates, so a
// change in the machine's speed affects all workloads alike. Ratios are computed per round.
//
// A large ledger is loaded through its API, as an Open and a Report for each receipt, in batches and without leases. Each
// part of its measurement runs in a process of its own, so that no part is slowed down by the leftovers of another, and
// callers over HTTP run in a process beside the node's. The page cache is not dropped between parts.
package main
