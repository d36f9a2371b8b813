package clusterstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/flight"
)

// deleteRedactedBodies deletes the stored bodies that a Redact removed from a flight, and adds the flight to the list
// for Scrub.
func (mb *memBatch) deleteRedactedBodies(s *dirtyFlight, next *record, old *flight.Flight, at flight.Version) {
	f := next.flight
	if old == nil || old.Generation != f.Generation || f.State == flight.StateExpired {
		return // moveBodies and deleteTombstonedRows delete the bodies of a previous generation and of an expired flight
	}
	erased := false
	if old.Input.StoredSize > 0 && f.Input.StoredSize == 0 {
		mb.deleteBody(s, next, old.InputGeneration, BodyInput)
		erased = true
	}
	if r := old.Receipt; r != f.Receipt && r != nil && r.Body.StoredSize > 0 && f.Receipt != nil && f.Receipt.Body.StoredSize == 0 {
		mb.deleteReceiptBody(s, next, old.Generation, r)
		erased = true
	}
	for i := range old.PreviousGenerations {
		if was, now := old.PreviousGenerations[i].Receipt, f.PreviousGenerations[i].Receipt; was != nil && now != was && was.Body.StoredSize > 0 && now.Body.StoredSize == 0 {
			mb.deleteReceiptBody(s, next, old.PreviousGenerations[i].Generation, was)
			erased = true
		}
	}
	if erased {
		mb.putRow(s, orderedKey(nil, erasedRow, at.Index, s.id), nil)
	}
}

// recordReErasure schedules another Scrub for a log entry that carries bytes of a redacted flight, such as a repeated
// report or import. No flight keeps these bytes, but the log holds them.
func (mb *memBatch) recordReErasure(s *dirtyFlight, c flight.Command, at flight.Version) {
	if f := flightOf(s.now); f != nil && f.Redacted != nil && carriesBytes(c) {
		mb.putRow(s, orderedKey(nil, erasedRow, at.Index, s.id), nil)
	}
}

// carriesBytes reports whether a command carries bytes that a Redact would erase.
func carriesBytes(c flight.Command) bool {
	switch c := c.(type) {
	case *flight.Submit:
		return len(c.Submission.Input.Data) > 0
	case *flight.Open:
		return len(c.Submission.Input.Data) > 0
	case *flight.Report:
		return len(c.Body.Data) > 0
	case *flight.ReportFinding:
		return len(c.Body.Data) > 0
	case *flight.Resolve:
		return len(c.Body.Data) > 0
	case *flight.Import:
		return len(c.Input.Data)+len(c.Body.Data) > 0
	}
	return false
}

// Scrub erases redacted bytes from this node's disk. It returns the number of erasures since the last Scrub. Reads
// return no redacted bytes from the moment of the Redact, but immutable files still hold them: tables of the state,
// the snapshot, and the raft log with the original commands. Scrub removes quarantined reports of these flights,
// compacts the tables with their rows, takes a new snapshot, truncates the log up to it, and compacts the truncated
// log.
//
// Scrub cannot erase write-ahead logs that the databases keep for reuse, up to four files of the size of a memtable
// per database; the next start removes them. Nor can it erase free blocks of a file system or disk.
//
// If the process dies before SCRUBBED is written, the next Scrub repeats all of it, which is harmless.
func (s *Store) Scrub(ctx context.Context) (int, error) {
	s.scrubMu.Lock()
	defer s.scrubMu.Unlock()
	from, err := s.readScrubbed()
	if err != nil {
		return 0, err
	}
	s.fsm.flush()
	ids, last, err := s.erasedSince(from)
	if err == nil {
		err = s.scrubQuarantine(ids)
	}
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := s.state.compactFlights(ctx, ids); err != nil {
		return 0, err
	}
	if err := s.truncateLog(ctx); err != nil {
		return 0, err
	}
	return len(ids), writeFile(s.cfg.FS, s.cfg.Dir, scrubbedFile, []byte(strconv.FormatUint(last, 10)+"\n"))
}

// readScrubbed returns the last entry that a Scrub has covered.
func (st *storage) readScrubbed() (uint64, error) {
	b, err := readFile(st.cfg.FS, st.cfg.FS.PathJoin(st.cfg.Dir, scrubbedFile))
	if oserror.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("clusterstore: read %s: %w", scrubbedFile, err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, nil // unreadable: scrub everything again
	}
	return n, nil
}

// erasedSince returns the flights with bytes erased after an entry, and the last such entry.
func (st *storage) erasedSince(from uint64) (ids []flight.ID, last uint64, err error) {
	err = st.state.scan(orderedKey(nil, erasedRow, from+1, flight.ID{}), kindKey(erasedRow+1), func(key, _ []byte) (bool, error) {
		at, id, err := splitOrderedKey(key)
		ids, last = append(ids, id), at
		return true, err
	})
	return ids, last, err
}

// compactFlights compacts all tables that hold rows of these flights, which drops deleted rows from the disk.
func (s *state) compactFlights(ctx context.Context, ids []flight.ID) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	if err := s.db.Flush(ctx); err != nil {
		return fmt.Errorf("clusterstore: scrub: %w", err)
	}
	for _, id := range ids {
		if err := s.db.Compact(ctx, flightKey(nil, id, duplicatesRow), flightKey(nil, id, bodyRow+1), false); err != nil {
			return fmt.Errorf("clusterstore: scrub flight %s: %w", id, err)
		}
	}
	return nil
}

// truncateLog takes a snapshot and deletes the log up to it, including the entries usually kept for followers that
// lag; those receive the snapshot.
func (s *Store) truncateLog(ctx context.Context) error {
	if s.leading.Load() != nil { // the one entry that remains in the log is then this Tick
		if _, err := s.Propose(ctx, &flight.Tick{}); err != nil {
			return err
		}
	}
	err := s.takeSnapshotKeeping(0)
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err) // a follower that has received no entry since; the next Scrub retries
	}
	return errors.Join(err, s.log.Scrub(ctx))
}
