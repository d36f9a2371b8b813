// Large measures a ledger with many receipts, by default ten million with incompressible bodies: its memory and disk
// space, its start time, the cost of a new key compared with an empty ledger, the cost of replays, and the latency of
// new keys while a million receipts expire.
//
//	go run ./bench/large                          ten million receipts; about a quarter of an hour and 30 GB of disk
//	go run ./bench/large -receipts 200000         a quick trial
//
// The receipts are loaded through the ledger's API, as an Open and a Report each, in batches and without leases. Every
// part runs in its own process, so that no part is slowed down by the leftovers of another. Compared variants take
// turns in one process, round by round, and ratios are computed per round. Callers over HTTP run in a process beside
// the node's. The page cache is not dropped between parts. Large prints a table and removes its data.
package main
