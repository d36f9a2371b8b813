// Package node starts and stops the parts of one flightd process. Read node.go first: [Run] starts the parts in order.
//
// # Start order
//
//	data directory  first: its lock keeps other processes out while any part below runs. A directory without a ledger is
//	                rejected before (init.go)
//	http            answers "starting" until the API is ready, and until the process ends. The settings of addresses and
//	                TLS are checked before anything is changed (listen.go, tls.go); connections.go bounds what callers
//	                that have not sent a complete request can hold
//	metrics         Config.Listen.Metrics, if set: metrics and health, from the start of the process to its end, too
//	ledger          opened concurrently with etcd: both take the longest. Raft starts when the ledger holds what etcd has
//	                recorded of it (consistency.go)
//	etcd            embedded, without a socket; this process calls it directly. Its files are checked before the start
//	                (etcd_check.go): etcd waits for ever on a truncated log and exits on a damaged one (etcd_start.go)
//	directory watch looks whether ledger and etcd still have their names, and ends the process if not (directory.go)
//	leases          need etcd for the claims, and the ledger's record of etcd's counter to detect a restored etcd
//	ledger record   records in etcd how far the ledger is durable: with each batch of claims, and every 250 ms
//	executor        needs ledger and leases; its sweeper finds ended sessions even when no caller asks. In a cluster it is a
//	                client whose requests go through this node's own forwarder (program.go)
//	compactor       compacts etcd's history
//	retention       expires flights whose retention is over
//	api             last: requests are accepted once all parts can serve them
//
// A stop runs in reverse order and waits for each part before it stops the next one (H35). First the API accepts no
// more requests. The executor lets running effects finish and report, and releases its claims. The leases delete the
// remaining claims and revoke the sessions of this process. The etcd client is closed before its server, which
// otherwise waits seven seconds for it. The ledger is closed after the executor and the leases, because they may still
// report. Sessions of remote callers are not ended: they remain in etcd and the next process finds them.
//
// # Who may reach a node
//
//	NoCredentials   programs of this machine, without a token. Listen and ListenMetrics are loopback addresses, and
//	                requests that a web page can send are rejected
//	otherwise       callers with a token, over TLS; over plain HTTP from this machine, or with AllowPlainHTTP. Metrics are
//	                served by ListenMetrics only, without a token
//
// The address that a name was resolved to is checked again before a connection is accepted. Plain HTTP at an address
// that speaks TLS is answered with a problem, whatever was sent.
//
// # What is true if the process dies
//
//	the process dies                       the next process
//	before the ledger was open             finds the data unchanged
//	while Init creates the ledger          finds the ledger and continues, or finds none and is rejected; Init then starts over
//	before etcd answered for the first     deletes etcd's data and creates it again: it held no claims (etcd_dir.go)
//	time
//	while the lease epoch is raised        finds the new epoch and starts, or returns the same error again
//	between the start of a lease session   does not wait: etcd expires the session. Its session key names the incarnation, so
//	and its first claim                    the next process never uses that session
//	with attempts open in this process     finds their sessions ended; their recovery policies decide
//	with attempts open at remote callers   finds their sessions in etcd, which expire a full TTL later unless renewed. The
//	                                       ledger's rules alone decide whether a report is accepted
//	with reports in the spool              proposes them again
//	because a write of ledger or etcd      finds every acknowledged write: the process ended before it answered a caller
//	failed                                 (Config.Process.Kill)
//	during a stop                          finds the same as after a crash at that point
package node
