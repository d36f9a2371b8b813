// Package metrics exports the metrics of a node to Prometheus. It counts events through the event structs of the
// packages executor, lease and clusterstore, and reads gauges when it is scraped. Nothing here is global: each node has
// its own registry, and the other packages do not import this one.
//
// # Labels
//
// No label contains a key, an id, an owner or any other value whose number grows with the ledger. Callers choose the
// values of one label only: action, the name in a key. The first Config.Actions names that a process sees get their own
// series. All later names share the value [OtherAction]. Results, outcomes, sources and reasons are closed sets.
//
// # Cost
//
// All series of a name are created when the name is first seen. The map of names is immutable and is replaced when a
// name is added. So an event costs a map lookup and one or two atomic additions, and does not allocate.
//
// # Paths
//
//	/metrics       the metrics of flightd, the Go runtime and the process
//	/metrics/etcd  the metrics of the embedded etcd, which its library keeps in the process's default registry
//	/metrics/raft  the metrics of the raft library, if CollectRaft was called; else empty
//
// The libraries have hundreds of series, whose names flightd cannot keep stable, so they have their own paths.
package metrics
