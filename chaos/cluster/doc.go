// Package cluster tears a cluster of flightd apart and judges what has happened. Run is the experiment: ../README.md says what it does.
//
// Each node is a process of its own, on a host (package netbed) and a disk (package disk) of its own. Callers on another host use the nodes
// through the clients in Go, Python and TypeScript: a process for each language (callers.go, and load.py and load.mts in
// clients/conformance), which share keys. Workers are processes, too. The provider has books of its own: each effect with its time.
//
// A fault (faults.go, disks.go) has a name, chooses its victim by chance, and says when it is healed what it has done. nemesis.go lets
// them overlap in rounds, and measures how soon the cluster is well after each. judge.go compares what callers, workers, persons and
// readers were told with the provider's books, with what every node says afterwards, with the ledger's log and with what is left in etcd.
//
// lock.go is an experiment of its own: jobs in lanes beside a mutex of etcd, under workers that stand still.
package cluster
