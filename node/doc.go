// Package node is the wiring, the birth and the death of one flightd process. [Run] reads from top to bottom as its
// life: node.go first.
//
// # What is started when, and why
//
//	data directory  nobody else may be in it while anything below is
//	http            answers from the first moment to the last that the node is starting
//	ledger          with etcd, side by side: neither knows of the other, and they take the longest
//	etcd            embedded; it listens nowhere, this process calls it directly. What it left is read first (etcd_check.go),
//	                because it would wait for ever on a log cut short, or end the process (etcd_birth.go)
//	leases          need both: etcd to claim in, and the ledger's word about etcd's past to hold it against
//	witness         lets etcd remember how far the ledger is (past.go)
//	executor        needs ledger and leases; its sweeper notices dead holders though nobody asks
//	compactor       keeps etcd's history short
//	retention       ends retentions that are over
//	door            requests are let in, now that there is somebody to serve them
//
// A stop goes the same way back, and each part is home before the next one is told (hazard 35): the door is shut, so
// that no work is taken; the executor lets what runs finish and report, and gives up its claims; the leases delete what
// claims are left and revoke this process's sessions; etcd's client is closed before its server, which else waits
// seven seconds for it; the ledger goes last, because everybody before it may still have to report. Sessions of remote
// callers are not ended: they belong to their callers, live in etcd's data, and are found again by the next process.
//
// # Where it can die
//
//	the process dies                       then the next one
//	before the ledger was open             finds everything as it was
//	before etcd answered for the first     makes it anew: nothing was ever claimed there (birth.go)
//	time
//	while the lease epoch is raised        finds it raised, and etcd accepted, or is refused again and told why again
//	between the start of a lease session   waits for nobody: that session's etcd lease ends by itself, and its boot id
//	and its first claim                    is never taken for this one's
//	with attempts open in this process     finds their holders gone, and their recovery policies decide
//	with attempts open at remote callers   finds their sessions in etcd, with a full TTL to be renewed in; a report is
//	                                       accepted in any case that the ledger allows
//	with reports in the spool              proposes them again
//	because the system refuses a write to  finds as much as the ledger and etcd have acknowledged: whichever met it ended the process
//	ledger or etcd                         before it answered anybody (Config.Kill)
//	in the middle of a stop                finds as much undone as above; a stop saves time, never truth
package node
