// Large measures a ledger of many receipts, by default ten million of them with bodies that cannot be compressed: what
// it takes of memory and disk, how long a start takes, what a new key and a replay cost beside an empty ledger, and
// whether anybody notices when a million retentions end.
//
//	go run ./bench/large                          ten million receipts; about a quarter of an hour and 30 GB of disk
//	go run ./bench/large -receipts 200000         a rehearsal
//
// The receipts come through the ledger's own door, as an Open and a Report each, in batches and without leases. Every
// part is measured in a process of its own, so that none pays for what another left behind; what is compared takes
// turns in one process, round by round, and ratios are taken within a round. Callers over HTTP have a process of their own
// beside the node's. The page cache is as warm as the run left it. It prints a table and removes its data.
package main
