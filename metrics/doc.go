// Package metrics shows a node to Prometheus. It fills the structs of optional event functions of the rooms below with
// collectors, and reads what is a state rather than an event when somebody asks for it. Nothing here is global: every
// node has a registry of its own, and rooms know nothing of this one.
//
// # Labels
//
// A label never holds a key, an id, an owner or anything else that grows with what is stored. The one label whose values
// callers choose is action, the name in a key: the first Config.Actions names that a process sees get series of their
// own, all later ones share the value [OtherAction]. Results, outcomes, sources and reasons are closed sets.
//
// # What it costs
//
// All series of a name are made when the name is first seen, and found again through a map that is never written to,
// only replaced. So an event costs a look-up and an addition or two, and allocates nothing.
//
// # What is where
//
//	/metrics       ours, with the Go runtime's and the process's
//	/metrics/etcd  those of the etcd in this process, which its library keeps in the process's default registry
//	/metrics/raft  those of the raft library, where CollectRaft was called; empty elsewhere
//
// They are kept apart because the libraries have hundreds of series, with names that are not ours to promise.
package metrics
