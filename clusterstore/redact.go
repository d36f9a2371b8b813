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

// dropErased drops the bytes that a record no longer speaks of although it goes on: those that a Redact erased.
func (t *turn) dropErased(s *slot, next *record, old *flight.Flight, at flight.Version) {
	f := next.flight
	if old == nil || old.Generation != f.Generation || f.State == flight.Expired {
		return // what a generation or a retention leaves behind is dropped by takeBodies and bury
	}
	erased := false
	if old.Input.Kept > 0 && f.Input.Kept == 0 {
		t.dropBody(s, next, old.InputFrom, Input)
		erased = true
	}
	if r := old.Receipt; r != f.Receipt && r != nil && r.Body.Kept > 0 && f.Receipt != nil && f.Receipt.Body.Kept == 0 {
		t.dropReceipt(s, next, old.Generation, r)
		erased = true
	}
	for i := range old.Past {
		if was, now := old.Past[i].Receipt, f.Past[i].Receipt; was != nil && now != was && was.Body.Kept > 0 && now.Body.Kept == 0 {
			t.dropReceipt(s, next, old.Past[i].Generation, was)
			erased = true
		}
	}
	if erased {
		t.set(s, placeKey(nil, erasedRow, at.Index, s.id), nil)
	}
}

// noteRepeated has the log cut once more where a command brings bytes to a flight of which they were erased. Nobody keeps
// them, but the command stands in the log.
func (t *turn) noteRepeated(s *slot, c flight.Command, at flight.Version) {
	if f := flightOf(s.now); f != nil && f.Redacted != nil && brings(c) {
		t.set(s, placeKey(nil, erasedRow, at.Index, s.id), nil)
	}
}

// brings reports whether a command carries bytes that a Redact would erase.
func brings(c flight.Command) bool {
	switch c := c.(type) {
	case *flight.Submit:
		return len(c.Submission.Input.Data) > 0
	case *flight.Open:
		return len(c.Submission.Input.Data) > 0
	case *flight.Report:
		return len(c.Body.Data) > 0
	case *flight.Verdict:
		return len(c.Body.Data) > 0
	case *flight.Resolve:
		return len(c.Body.Data) > 0
	case *flight.Import:
		return len(c.Input.Data)+len(c.Body.Data) > 0
	}
	return false
}

// Scrub makes the bytes that a Redact erased leave this node's disk, and answers how many flights it was about since the
// last Scrub. No reader gets such bytes from the moment of the Redact on; but files are only ever written, and so older
// ones still hold them: tables of the state, the snapshot, and the raft log, where the commands stand that once brought
// them. Scrub writes the tables anew that hold rows of these flights, takes a snapshot in the place of the old one, cuts
// the log right behind it, and drops what was cut off. Reports of these flights that the spool put aside go first.
//
// What it cannot reach are write-ahead logs that the databases keep in order to write over them, up to four files of the
// size of a table of recent writes each: those go with the next start. Nor can it say what a file system or a disk does
// with blocks that are free.
//
// If the process dies on the way it is done again from the beginning.
func (s *Store) Scrub(ctx context.Context) (int, error) {
	s.scrubs.Lock()
	defer s.scrubs.Unlock()
	from, err := s.scrubbed()
	if err != nil {
		return 0, err
	}
	s.machine.flush()
	ids, last, err := s.erasedSince(from)
	if err == nil {
		err = s.scrubAside(ids)
	}
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := s.state.rewrite(ctx, ids); err != nil {
		return 0, err
	}
	if err := s.cutLog(ctx); err != nil {
		return 0, err
	}
	return len(ids), writeFile(s.cfg.FS, s.cfg.Dir, scrubbedFile, []byte(strconv.FormatUint(last, 10)+"\n"))
}

// scrubbed is the entry up to which a Scrub went.
func (s *Store) scrubbed() (uint64, error) {
	b, err := readFile(s.cfg.FS, s.cfg.FS.PathJoin(s.cfg.Dir, scrubbedFile))
	if oserror.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("clusterstore: read %s: %w", scrubbedFile, err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, nil // what cannot be read is done again
	}
	return n, nil
}

// erasedSince gives the flights of which bytes were erased behind an entry, and the last such entry.
func (s *Store) erasedSince(from uint64) (ids []flight.ID, last uint64, err error) {
	err = s.state.scan(placeKey(nil, erasedRow, from+1, flight.ID{}), singleRow(erasedRow+1), func(key, _ []byte) (bool, error) {
		at, id, err := splitPlace(key)
		ids, last = append(ids, id), at
		return true, err
	})
	return ids, last, err
}

// rewrite writes all tables anew that hold rows of these flights, without what was deleted.
func (s *state) rewrite(ctx context.Context, ids []flight.ID) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	if err := s.db.Flush(ctx); err != nil {
		return fmt.Errorf("clusterstore: scrub: %w", err)
	}
	for _, id := range ids {
		if err := s.db.Compact(ctx, ownKey(nil, id, tallyRow), ownKey(nil, id, bodyRow+1), false); err != nil {
			return fmt.Errorf("clusterstore: scrub flight %s: %w", id, err)
		}
	}
	return nil
}

// cutLog takes a snapshot and drops the log behind it, also what is otherwise kept for followers that lag: those get
// the snapshot.
func (s *Store) cutLog(ctx context.Context) error {
	if s.leading.Load() != nil { // what is left of the log is then this entry
		if _, err := s.Propose(ctx, &flight.Tick{}); err != nil {
			return err
		}
	}
	usual := s.raft.ReloadableConfig()
	short := usual
	short.TrailingLogs = 1 // a log is never empty
	if err := s.raft.ReloadConfig(short); err != nil {
		return fmt.Errorf("clusterstore: scrub: %w", err)
	}
	err := s.takeSnapshot()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err) // a follower that nothing reached since: the next Scrub
	}
	return errors.Join(err, s.raft.ReloadConfig(usual), s.log.Scrub(ctx))
}
