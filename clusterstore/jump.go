package clusterstore

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/errors/oserror"

	"github.com/flightd/flightd/flight"
)

// The ledger's time jumps when a lone voter starts, and a machine that starts with a wrong clock may well start once more before
// somebody has set it right. The ledger's time is that of the wrong clock by then, so that the second start would see no jump. So a
// file says from where it jumped, for as long as nothing expires that only the jump made due.

// readJump is the ledger's time before the jump that the file tells of; 0: it tells of none. One that cannot be read may be of any.
func (s *Store) readJump() flight.Time {
	b, err := readFile(s.cfg.FS, s.cfg.FS.PathJoin(s.cfg.Dir, jumpedFile))
	if oserror.IsNotExist(err) {
		return 0
	}
	if err == nil {
		var from uint64
		if from, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 63); err == nil {
			return max(1, flight.Time(from))
		}
	}
	s.cfg.Logger.Warn("clusterstore: from where the ledger's time jumped cannot be read; for an hour nothing expires", "file", jumpedFile, "error", err)
	return 1
}

// noteJump writes the file, or removes it where there is no jump, or none any more.
func (s *Store) noteJump() {
	var err error
	from := s.clock.settling()
	if s.jumped.Store(from > 0); from > 0 {
		err = writeFile(s.cfg.FS, s.cfg.Dir, jumpedFile, []byte(strconv.FormatInt(int64(from), 10)+"\n"))
	} else if err = s.cfg.FS.Remove(s.cfg.FS.PathJoin(s.cfg.Dir, jumpedFile)); oserror.IsNotExist(err) {
		err = nil
	}
	if err != nil {
		s.cfg.Logger.Warn("clusterstore: a start within the next hour may end retentions that only a wrong clock made due", "file", jumpedFile, "error", err)
	}
}

// settleJump removes the file once the jump is settled.
func (s *Store) settleJump() {
	if s.jumped.Load() && s.clock.settling() == 0 {
		s.noteJump()
	}
}
