// Package clusterstore is the ledger: the rules of package flight, replicated by raft.
//
// A Store is one node of the ledger. It proposes commands to raft, and every node applies the committed entries with
// flight.Apply, in the order of the log. Packages below know nothing of raft and Pebble; packages above need not.
//
// # The path of a command
//
//	Propose   encodes the command and queues it in the batcher (batch.go).
//	batcher   collects the commands that arrive while earlier batches are in flight, stamps the batch with the
//	          ledger's time, and with the wall clock if that is later (clock.go), and gives it to raft as one entry
//	          (entry.go).
//	raft      appends the entry to the log (package pebblelog), with one sync for all waiting entries, under a watchdog
//	          (watchdog.go), and commits it.
//	fsm       applies it (fsm.go, mem_batch.go). Readers see flights and header at once, and each caller is answered.
//	flush     writes the changes of the last moments to the state as one Pebble batch (flush.go, rows.go), with the
//	          index of the last applied entry.
//
// A caller is answered when the command is durable in the log, before it is in the state. A flight that is opened and
// reported within 100 ms costs the state one record.
//
// A flight is found by the digest of its key: in the cache (cache.go), in the changes that are not flushed yet, or in
// one row of the state, which also holds its short bodies (record.go). Every new flight looks its key up twice; the
// key filter (key_filter.go) answers for unused keys from memory.
//
// # Sessions
//
// The fsm also keeps the flights that each session holds, and the sessions that have ended lately (sessions.go). The
// first table is derived from the live flights: it is not stored, and a start rebuilds it. The second is stored in rows
// of its own, which every voter deletes at the same entry. EndSession is the only command that changes many flights. They
// all get its version, and a row lists them, so that the feed finds their histories.
//
// # Due flights
//
// flight.Due is derived from the live flights, too: when an attempt, a callback or a sleeping saga is overdue, which submitted
// jobs may be handed out, and how they stand in their lanes. It also counts the sagas that
// use a definition. Of all this, only that count and whether a lane lets a flight open decide anything in the state machine.
//
// # Feed
//
// The feed (feed.go) is the sequence of all events, in the order of the log. Nothing is stored for it: a reader reads
// the log after its position, and finds the events in the histories of the flights. So a position is valid on every
// node and across restarts, a slow reader delays nobody, and a reader whose position was truncated after a snapshot
// gets a CompactedError. Duplicates (duplicates.go) are counted in memory and proposed a moment later.
//
// # Documents and the audit log
//
// Documents (documents.go) are the named configuration of the deployment: tokens, limits of namespaces, definitions of sagas. All of
// them are in memory. Each command of a person that changes a flight or a document writes a line of the audit log, under
// the command's version; the events of documents in the feed come from these lines. The fsm counts the listed flights of
// each namespace.
//
// # Feature level
//
// The header has the feature level (level.go, package flight): which commands and rows this ledger may hold. It rises by
// a command, when every voter reads the next one, and never falls. The meta row has it, too, so that an
// older build can take over a state until then, and rejects it afterwards. A node decodes an entry completely before it
// applies any of it; one that cannot read an entry stops, and does not skip it.
//
// # Several voters
//
// Config.Peers makes the ledger a voter among several (voters.go). Identify names the instance before the node connects
// to anything: a node that lost its directory comes back as another one. An empty directory founds a cluster with the
// voters of Peers.Founding, or waits until a leader adds it. The first leader proposes the deployment's name and secret
// before it accepts other commands; AwaitDeployment returns when they are applied. The ledger's time goes by the median of
// the voters' clocks (clock_peers.go).
//
// # On disk
//
//	LOCK, IDENTITY     the lock, and the owner of the directory (files.go)
//	log/               raft's entries and votes; synced
//	CURRENT, state-N/  the rows; not synced, because the log is; CURRENT holds the valid N
//	snapshots/         checkpoints of the state (hard links and a small file), or rows that another node sent
//	spool/             reports that are not committed yet; synced
//	SCRUBBED           the entry up to which redacted bytes are erased from this disk (redact.go)
//	CLOCK_STEP         the ledger's time before a clock step at a start, until the step has settled (clock_step.go)
//
// # If the process dies on this line
//
//	where                                       then
//	Propose, before the sync of the log         The command may be in the log. The caller was not answered and proposes
//	                                            it again; every command may be applied twice.
//	after the sync, before the answer           The command is in the log, and the next start applies it.
//	apply, before the flush                     The state is older than the log. The next start applies the rest again.
//	flush                                       The state has the whole batch with its index, or nothing of it.
//	between two EndSession of one session       The session is recorded as ended and still holds some flights. EndSession is
//	                                            proposed again.
//	Report, before the report is in the spool   As Propose. The caller still has the report.
//	Report, after it                            The next start proposes the report.
//	after its commit, before its removal        The next start proposes the report again, which changes nothing.
//	Snapshot, before the sink is closed         The old snapshot and the whole log exist. The next start removes the
//	                                            incomplete snapshot.
//	after it, before the log is truncated       The log is longer than needed.
//	Restore, before CURRENT is renamed          The old state is valid, and the snapshot is restored again.
//	after it                                    The new state is valid. The next start removes the old one, and the log
//	                                            that the snapshot has replaced.
//	CountDuplicate, before the count commits    The duplicate is not counted. No rule reads the counts.
//	Scrub, before SCRUBBED is written           The next Scrub repeats it, which is harmless.
//	start, before the clock step commits        CLOCK_STEP is written, no entry has the new time, and no deadline has moved.
//	                                            The next start makes the step.
//	after it                                    The entry has the new time and the step, so deadlines have moved. The next start
//	                                            begins a new hour in which nothing expires because of the step.
//	Bootstrap                                   The log is empty, or holds its term and its first entry.
//	after it, before IDENTITY is marked         The next start finds the entry and marks IDENTITY. So it is with the first
//	                                            entry, or the snapshot, that a leader sends to a new node.
//	between the first entry of a term and       The next leader proposes its own deployment, unless it finds one: of
//	the deployment                              several only the first counts.
//
// # Backups
//
// A backup (backup.go) is a snapshot as a stream of rows, the reports in the spool, and a manifest with checksums. A
// directory made from it has this snapshot, the ids of the ledger, and an empty log.
//
// # When a running ledger ends its process
//
// Limits.Kill is called when the operating system refuses to create, write or sync a write-ahead log or a manifest
// (pebblelog), when a write of the log takes longer than Limits.StallTimeout, when the state cannot be written, and
// when a committed entry cannot be applied. No waiting caller is answered then; the table above says what the next
// start finds.
//
// # What a start repairs or rejects
//
//	state directory missing, log complete       repaired: the whole log is applied again
//	state directory missing, snapshot readable  repaired: the snapshot is restored, the rest of the log is applied
//	state directory missing, log truncated,     rejected: the entries between are lost
//	no readable snapshot
//	CURRENT missing, a restored state exists    rejected: the restored state may be incomplete
//	snapshots missing, state complete           repaired: the start takes a new snapshot
//	last records of the log unreadable          repaired if Config.CheckPast agrees: a write that was torn was never
//	                                            acknowledged. Damage at the very end looks the same
//	damage before the end of the log            rejected: a later record proves that the damaged one was synced
//	log ends before the last applied entry,     rejected: durable entries are lost, and perhaps more
//	or before this node's own snapshot
//	log directory missing                       rejected: this node forgot its votes and could vote twice
//	IDENTITY missing, other files exist         rejected: a new ledger would not know the used keys
//	log, state and snapshots missing            rejected: IDENTITY says that the log had an entry. A directory that was
//	                                            last used by a build without this mark becomes a new ledger.
//	key filter without every flight             rejected: it would deny a used key
//	spooled report with a checksum mismatch     quarantined, logged and counted
//	spooled report that cannot be read now      rejected: it may be the only record of an effect
//	spooled report of a newer version           kept, logged and counted: the newer version proposes it
//	entry of a newer version in the log         rejected before anything is applied
//	block with a checksum mismatch              rejected if the start needs it; later the fsm kills the process, and a
//	                                            reader gets an error. verify.go finds one that nobody reads
//	no permission, file descriptor or disk      rejected with the system's error, not as damage: the next start may
//	space; a bad sector                         succeed
//	directory of another node or cluster, in    rejected
//	use, of a newer version, or from before
//	the first release
//
// A loss at the very end leaves no trace on this disk: one that drops or damages the last synced records of the log, and
// the state with them. Config.CheckPast compares the disk with a record elsewhere (past.go), before raft appends anything.
//
// After a power cut, a file system without a journal can persist a newer directory entry and lose an older one. flightd
// refuses to start on such a directory, even during the very first start: Pebble creates a manifest and a marker that
// names it, syncs both names together, and a marker without its manifest is indistinguishable from data loss.
package clusterstore
