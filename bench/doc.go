// Bench measures the cost of a flight, in one run and on one machine: the raw path of its three durable writes, the
// executor, the HTTP API, replays, and a hand-written ledger on Postgres. It also measures the layers below the
// executor, and requests to an empty server, as a lower bound (baseline.go).
//
//	go run ./bench                                       the table of docs/performance.md
//	go run ./bench -postgres 'host=/tmp user=postgres'   with the Postgres ledger in it
//
// Every figure is the median of several rounds. In each round every workload runs once, so a change in the machine's
// speed affects all workloads alike. Ratios are computed per round.
package main
