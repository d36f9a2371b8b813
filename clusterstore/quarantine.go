package clusterstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/flightd/flightd/flight"
)

// quarantine renames a damaged file, so that an operator can inspect it, and logs and publishes the event.
func (sp *spool) quarantine(name string, why error) {
	fs := sp.cfg.FS
	if err := fs.Rename(fs.PathJoin(sp.dir, name), fs.PathJoin(sp.dir, name+quarantineSuffix)); err != nil {
		why = errors.Join(why, err)
	}
	sp.cfg.Logger.Error("clusterstore: a spooled report is quarantined", "file", name, "error", why)
	if f := sp.cfg.Events.ReportQuarantined; f != nil {
		f(name, why)
	}
}

// quarantined returns how many files need a person: quarantined ones, from this process or an earlier one, and those that
// only a newer build can decode. It returns -1 when the directory cannot be read. files are the names of the quarantined ones.
func (sp *spool) quarantined() (n int, files []string) {
	names, err := sp.cfg.FS.List(sp.dir)
	if err != nil {
		return -1, nil
	}
	for _, name := range names {
		if strings.HasSuffix(name, spoolSuffix+quarantineSuffix) {
			files = append(files, name)
		}
	}
	return sp.unknown + len(files), files
}

// quarantinedFlight returns the flight of a quarantined file. Its name holds the flight's id, even when its content
// is damaged.
func quarantinedFlight(name string) (id flight.ID, aside bool) {
	digits, _, _ := strings.Cut(name, "-")
	if !strings.HasSuffix(name, spoolSuffix+quarantineSuffix) || hex.DecodedLen(len(digits)) != len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(digits))
	return id, err == nil
}

// removeRedacted durably removes the quarantined reports of flights for which redacted returns true.
func (sp *spool) removeRedacted(redacted func(flight.ID) (bool, error)) error {
	names, err := sp.cfg.FS.List(sp.dir)
	if err != nil {
		return fmt.Errorf("clusterstore: list %s: %w", sp.dir, err)
	}
	removed := false
	for _, name := range names {
		id, aside := quarantinedFlight(name)
		if !aside {
			continue
		}
		if due, err := redacted(id); err != nil || !due {
			if err != nil {
				return err
			}
			continue
		}
		if err := sp.cfg.FS.Remove(sp.cfg.FS.PathJoin(sp.dir, name)); err != nil {
			return fmt.Errorf("clusterstore: remove %s: %w", name, err)
		}
		sp.cfg.Logger.Warn("clusterstore: removed a quarantined report, because its flight is redacted", "file", name)
		removed = true
	}
	if !removed {
		return nil
	}
	return syncDir(sp.cfg.FS, sp.dir)
}

// scrubQuarantine removes the quarantined reports of the given flights and of every flight redacted earlier.
func (st *storage) scrubQuarantine(now []flight.ID) error {
	just := make(map[flight.ID]bool, len(now))
	for _, id := range now {
		just[id] = true
	}
	return st.spool.removeRedacted(func(id flight.ID) (bool, error) {
		f, err := st.Flight(id)
		return just[id] || f != nil && f.Redacted != nil, err
	})
}
