package clusterstore

import (
	"strconv"
	"strings"

	"github.com/cockroachdb/errors/oserror"

	"github.com/flightd/flightd/flight"
)

// A lone voter steps the ledger's time to the wall clock when it starts. A machine with a wrong clock may restart
// several times before an operator corrects it. The second start would see no step, because the ledger's time is
// already the wrong clock's. So the file CLOCK_STEP holds the time before the step for as long as stepGrace lasts.

// readClockStep returns the ledger's time before the step; 0 when there was none. A file that cannot be read counts
// as a step from the earliest time, so that nothing expires during stepGrace.
func (s *Store) readClockStep() flight.Time {
	b, err := readFile(s.cfg.FS, s.cfg.FS.PathJoin(s.cfg.Dir, clockStepFile))
	if oserror.IsNotExist(err) {
		return 0
	}
	if err == nil {
		var from uint64
		if from, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 63); err == nil {
			return max(1, flight.Time(from))
		}
	}
	s.cfg.Logger.Warn("clusterstore: the file of the last clock step cannot be read; no retention expires for one hour", "file", clockStepFile, "error", err)
	return 1
}

// writeClockStep writes the file while a step is unsettled, else removes it.
//
// If the process dies before the write, no entry has the new time yet, and the next start sees the same step.
func (s *Store) writeClockStep() {
	var err error
	from := s.clock.stepUnsettled()
	if s.clockStepStored.Store(from > 0); from > 0 {
		err = writeFile(s.cfg.FS, s.cfg.Dir, clockStepFile, []byte(strconv.FormatInt(int64(from), 10)+"\n"))
	} else if err = s.cfg.FS.Remove(s.cfg.FS.PathJoin(s.cfg.Dir, clockStepFile)); oserror.IsNotExist(err) {
		err = nil
	}
	if err != nil {
		s.cfg.Logger.Warn("clusterstore: the clock step cannot be stored; after a restart within one hour, retentions may expire early", "file", clockStepFile, "error", err)
	}
}

// removeSettledClockStep removes the file when stepGrace is over.
func (s *Store) removeSettledClockStep() {
	if s.clockStepStored.Load() && s.clock.stepUnsettled() == 0 {
		s.writeClockStep()
	}
}
