// Package cluster breaks a cluster of three flightd nodes on purpose and judges what its callers were told.
//
// Each node is a process of its own on a host of its own (package netbed). Callers on another host use all nodes through the
// clients in Go, Python and TypeScript: a process for each language (callers_test.go, and load.py and load.mts in
// clients/conformance), which share keys. The provider has books of its own: each effect with its time. Tests kill and freeze
// nodes and cut the links between them; Check then compares the books with what callers were told, and with what every node
// says afterwards.
//
// TestPools does the same to workers, each of which is a process, too: jobs are submitted three times, and CheckJobs compares the
// provider's books with their receipts and with the order of their lanes. With -args -jobs 10000 -workers 20 -trouble 4m it has the
// size of a large installation. TestPlantedBugs shows that CheckJobs finds a bug in flightd.
//
// With -own-etcd, etcd runs in three processes on hosts of their own, and the nodes use it with TLS; else its members are in the
// nodes.
//
// The experiments need Linux, root and nft, and have the build tag chaos: run make chaos-short. The checker, the provider and
// the history are tested without them.
package cluster
