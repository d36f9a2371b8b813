package clusterstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/flightd/flightd/flight"
)

// putAside keeps a file that cannot be read for a person to look at, and says so.
func (p *spool) putAside(name string, why error) {
	fs := p.cfg.FS
	if err := fs.Rename(fs.PathJoin(p.dir, name), fs.PathJoin(p.dir, name+spoolBad)); err != nil {
		why = errors.Join(why, err)
	}
	p.cfg.Logger.Error("clusterstore: a spooled report is put aside", "file", name, "error", why)
	if f := p.cfg.Events.SpoolDamaged; f != nil {
		f(name, why)
	}
}

// aside is how many files were put aside, by this process or by one before it, and are still there; -1 where that cannot be read.
func (p *spool) aside() int {
	names, err := p.cfg.FS.List(p.dir)
	if err != nil {
		return -1
	}
	n := 0
	for _, name := range names {
		if strings.HasSuffix(name, spoolSuffix+spoolBad) {
			n++
		}
	}
	return n
}

// asideOf says of which flight a file is that was put aside. Its name says so, whatever is left of the rest.
func asideOf(name string) (id flight.ID, aside bool) {
	digits, _, _ := strings.Cut(name, "-")
	if !strings.HasSuffix(name, spoolSuffix+spoolBad) || hex.DecodedLen(len(digits)) != len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(digits))
	return id, err == nil
}

// eraseAside removes what was put aside of flights that were redacted, for which redacted says so. A crash does not bring it back.
func (p *spool) eraseAside(redacted func(flight.ID) (bool, error)) error {
	names, err := p.cfg.FS.List(p.dir)
	if err != nil {
		return fmt.Errorf("clusterstore: list %s: %w", p.dir, err)
	}
	removed := false
	for _, name := range names {
		id, aside := asideOf(name)
		if !aside {
			continue
		}
		if due, err := redacted(id); err != nil || !due {
			if err != nil {
				return err
			}
			continue
		}
		if err := p.cfg.FS.Remove(p.cfg.FS.PathJoin(p.dir, name)); err != nil {
			return fmt.Errorf("clusterstore: remove %s: %w", name, err)
		}
		p.cfg.Logger.Warn("clusterstore: a report that was put aside is erased, because its flight was redacted", "file", name)
		removed = true
	}
	if !removed {
		return nil
	}
	return syncDir(p.cfg.FS, p.dir)
}

// scrubAside has the spool erase what it put aside of flights that were redacted: ever, or just now.
func (s *Store) scrubAside(now []flight.ID) error {
	just := make(map[flight.ID]bool, len(now))
	for _, id := range now {
		just[id] = true
	}
	return s.spool.eraseAside(func(id flight.ID) (bool, error) {
		f, err := s.Flight(id)
		return just[id] || f != nil && f.Redacted != nil, err
	})
}
