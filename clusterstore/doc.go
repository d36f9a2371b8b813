// Package clusterstore is the memory of flights: the rules of package flight, replicated.
//
// A Store is one node's part of it. Commands are proposed to raft, and what the log says is applied by flight.Apply,
// in the log's order, on every node. The packages below know nothing of raft and Pebble, those above need not.
//
// # The way of a command
//
//	Propose   encodes it and puts it into the queue of the packer (batch.go).
//	packer    collects what comes while earlier packets are on their way, stamps the packet with the ledger's time
//	          and, where that is ahead, the wall clock (clock.go), and hands it to raft as one entry (entry.go).
//	raft      stores it in our log (package pebblelog), with one sync for all entries that wait, under a watchdog
//	          (watchdog.go), and commits it.
//	machine   applies it (machine.go, turn.go): flights, header and waiters see the result at once, and everybody who
//	          proposed gets an answer.
//	flush     writes what was applied in the last moments to the state as one batch (flush.go, rows.go), together with
//	          how far the log is applied.
//
// A flight is found by the digest of its key: in the cache of what was written last or read more than once (cache.go), in what
// is not written yet, or in one row of the state, which holds its short bodies, too (record.go). That a key was never used, which
// every new flight asks twice, is known without a look at the state (roll.go).
//
// An answer comes when the log holds the command for ever, before the state does. A flight that is opened and reported
// within a tenth of a second costs the state one record.
//
// # Sessions
//
// Beside the flights the machine keeps which session holds which of them, and which sessions have ended lately
// (sessions.go). The first follows from the flights: nothing of it is written, and a start builds it anew from the flights
// that are not over. The second is rows of their own, written in the same batch as everything else; every voter drops them
// by the same entry. An Ended is the only command that changes many flights. They share its version, and a row says which
// they are, so that the feed finds their histories.
//
// # What happened
//
// The feed (feed.go) is everything that happens, in the order of the log. Nothing is collected for it: a reader reads the
// log behind its place and finds the events in the histories of the flights. So a place is good across restarts and on
// every node, a slow reader is nobody's business but its own, and who comes too late, when the log was cut behind a
// snapshot, is told so. Duplicates (tally.go) are counted in memory and proposed a moment later with other traffic.
//
// # What is on disk
//
//	LOCK, IDENTITY     whose directory this is (files.go)
//	log/               raft's entries and votes; synced
//	CURRENT, state-N/  the rows; not synced, because the log is; CURRENT says which N
//	snapshots/         checkpoints of the state: hard links and a small file; or rows that another node sent
//	spool/             reports that are not committed yet; synced
//	SCRUBBED           up to which entry redacted bytes have left this disk (redact.go)
//	JUMPED             from where the ledger's time jumped at a start, until that is settled (jump.go)
//
// # If the process dies
//
//	where                                       what is true then
//	Propose, before the sync of the log         the command is in the log or not; nobody was answered. Whoever proposed
//	                                            it asks again: every command may be applied twice.
//	after the sync, before the answer           it is in the log and will be applied by the next start.
//	apply, before the write to the state        the state is older than the log says; the start applies the rest again.
//	in the write to the state                   the batch is there as a whole or not at all, with the index it stands for.
//	between two Ended of one session            the session is remembered as ended, and some of its flights are still held
//	                                            by it. The proof is brought again.
//	Report, within its patience                 as Propose. The reporter was not answered, and still has the report.
//	Report, after it was spooled                the report is on this disk, and the next start proposes it.
//	between its commit and its spool's removal  it is proposed once more, which changes nothing.
//	Snapshot, before the sink is closed         the old snapshot and the whole log are there; leftovers are removed.
//	after it, before the log is cut             there is more log than is needed.
//	Restore, before CURRENT is renamed          the old state is there, and it is restored again.
//	after it                                    the new state is there; the old one is removed by the next start.
//	Duplicate, before its Count is committed    it was not counted. Counts tell a tale; no rule reads them.
//	Scrub, before SCRUBBED is written           it is done again, which is harmless.
//	bootstrap                                   there is no log yet, or a log with its term and its first entry.
//	between it and the note of it in IDENTITY   the next start finds the entry, and notes it.
//
// # What a running ledger dies of
//
// Of what it cannot do without: a write-ahead log, or a manifest, that the system refuses to make, to write or to sync
// (pebblelog/refused.go); a write of the log that takes longer than Guard.Stall; a state that cannot be written; a committed
// entry that cannot be applied. Guard.Kill is called, and who waits for it is never answered; the next start finds what the table
// says of that place.
//
// # What a start repairs, and what it refuses
//
//	state directory gone, log whole             repaired: all of the log is applied again.
//	state directory gone, snapshot there        repaired: the snapshot is restored, the rest of the log is applied.
//	state directory gone, log cut in front,     refused: nothing holds what lies between.
//	no readable snapshot
//	CURRENT gone, a restored state there        refused: it could be one that is not whole.
//	snapshots gone, state whole                 repaired: the start takes a new one.
//	last write of the log torn                  repaired: nobody was told of it, it never was.
//	damage in the log before its end            refused, because a later record proves that it was synced.
//	log shorter than what the state applied,    refused: entries that were durable are gone, nobody knows which else.
//	or than this node's own snapshot
//	log directory gone                          refused: this node forgot its votes, and could vote twice.
//	IDENTITY gone, anything else there          refused: as a new ledger it would know no key.
//	log, state and snapshots gone, IDENTITY     refused, likewise: it says that the log had an entry. Only where a build
//	there                                       from before this mark was the last one, it is taken for a new ledger.
//	a roll that does not name every flight      refused: it would deny a key that was used.
//	a spooled report without its checksum       put aside for a person, and told.
//	one that cannot be opened now, or of a      refused: it may be all that is known of an effect.
//	newer version
//	a block without its checksum                refused where a start needs it; the state machine dies of it; a reader
//	                                            gets an error.
//	a permission, a file descriptor, room or a  refused with the system's own error, which is no damage: the next start
//	sector that the system refuses              may get it.
//	another node's or cluster's directory, one  refused.
//	that is in use, of a newer version, or of
//	one from before the first release
//
// A loss that leaves no trace cannot be noticed: a disk that drops synced records from the very end of the log, and
// the state with them.
//
// A file system that, when the power goes, keeps a younger name of a directory without an older one in it, is refused after it, be
// it in the first start, when nothing was ever acknowledged: at every start Pebble makes a manifest and the mark that names it, and
// syncs the two names together. None with a journal does so. That IDENTITY is not marked proves nothing there, since builds from
// before that mark leave it so, too.
package clusterstore
