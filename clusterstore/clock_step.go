package clusterstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/errors/oserror"

	"github.com/flightd/flightd/flight"
)

// A lone voter steps the ledger's time to the wall clock when it starts. A machine with a wrong clock may restart
// several times before an operator corrects it. The second start would see no step, because the ledger's time is
// already the wrong clock's. So the file CLOCK_STEP holds the time before the step for as long as stepGrace lasts.
//
// Several voters step to the median of a majority's clocks, once in each term, and again after a time in which those clocks
// were unknown. One wrong clock does not move the median, so nothing waits for stepGrace and no file is written.

// minReportedStep is the smallest step that is reported to Events.ClockStepped: one minute of ledger time.
const minReportedStep = 60_000

// stepClock steps the ledger's clock forward to the wall clock if a step is due (planStep). One entry carries both the new time and the step by which the time of every holder moves, and no earlier
// entry has the new time: other proposals are stamped by the clock, which is set forward after the commit.
//
// A new ledger needs no entry: nothing in it has begun.
//
// If the process dies before the commit, the next start sees the same step. If it dies after it, the ledger has the new
// time, and CLOCK_STEP of a lone voter the old one.
func (s *Store) stepClock(ctx context.Context) error {
	s.stepMu.Lock()
	defer s.stepMu.Unlock()
	now, to, due := s.clock.planStep()
	fresh := s.Header().Deployment == ""
	if !due {
		return nil
	}
	before, alone := now, s.clock.alone()
	if fresh || !alone {
		before = to // it holds nothing that could expire, or a median of several clocks has decided
	} else if earlier := s.readClockStep(); earlier > 0 {
		before = min(now, earlier)
	}
	if alone {
		s.writeClockStep(before, to)
	}
	if to > now && !fresh {
		if err := s.proposeAtStart(ctx, &flight.Tick{StepTo: to}); err != nil {
			return err
		}
	}
	s.clock.setForward(before, to)
	if f := s.cfg.Events.ClockStepped; f != nil && !fresh && to > now+minReportedStep {
		f(now, to)
	}
	return nil
}

// readClockStep returns the ledger's time before the step, or 0 if there was none. A file that cannot be read counts
// as a step from the earliest time, so that nothing expires during stepGrace.
func (st *storage) readClockStep() flight.Time {
	b, err := readFile(st.cfg.FS, st.cfg.FS.PathJoin(st.cfg.Dir, clockStepFile))
	if oserror.IsNotExist(err) {
		return 0
	}
	if err == nil {
		var from uint64
		if from, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 63); err == nil {
			return max(1, flight.Time(from))
		}
	}
	st.cfg.Logger.Warn("clusterstore: the file of the last clock step cannot be read; no retention expires for one hour", "file", clockStepFile, "error", err)
	return 1
}

// writeClockStep writes the time before a step to the file if the step is one that needs stepGrace, else it removes the
// file.
func (st *storage) writeClockStep(before, to flight.Time) {
	var err error
	unsettled := to.Until(before) > stepGrace
	if st.clockStepStored.Store(unsettled); unsettled {
		err = writeFile(st.cfg.FS, st.cfg.Dir, clockStepFile, []byte(strconv.FormatInt(int64(before), 10)+"\n"))
	} else if err = st.cfg.FS.Remove(st.cfg.FS.PathJoin(st.cfg.Dir, clockStepFile)); oserror.IsNotExist(err) {
		err = nil
	}
	if err != nil {
		st.cfg.Logger.Warn("clusterstore: the clock step cannot be stored; after a restart within one hour, retentions may expire early", "file", clockStepFile, "error", err)
	}
}

// removeSettledClockStep removes the file when stepGrace is over.
func (s *Store) removeSettledClockStep() {
	if s.clockStepStored.Load() && s.clock.stepSettled() {
		s.writeClockStep(0, 0)
	}
}

// SetPeerClocks sets the wall clocks of the other voters that have answered within the last half second, as estimates of
// now. Call it about twice a second on every node of a cluster, also when no voter has answered: clocks that were set more
// than two seconds ago do not count.
//
// The leader of a new ledger accepts no proposal, and names no deployment, before it has the clocks of a majority, its own
// included. Later it goes on without them, by its monotonic clock, and steps to the median when they are there.
func (s *Store) SetPeerClocks(walls []time.Time) {
	if s.cfg.Peers == nil {
		return
	}
	s.clock.setPeers(walls, s.voterCount())
	select {
	case s.clocksSet <- struct{}{}:
	default: // already signalled
	}
}

// followPeerClocks goes on with what waits for the clocks of a majority: the start of a new ledger, or a step. It runs on
// the goroutine of watchLeadership.
func (s *Store) followPeerClocks() {
	switch {
	case !s.clock.hasMajority():
	case s.leading.Load() != nil:
		if err := s.stepClock(context.Background()); err != nil {
			s.cfg.Logger.Warn("clusterstore: the ledger's clock did not step to the median of the voters' clocks", "error", err)
		}
	case s.awaitsClocks:
		s.startLeading()
	}
}

// UpperTime is the time by which tokens expire: in a cluster the upper median of the voters' clocks, so that one clock that
// is behind does not prolong a token, else Now. It may go back when a clock is corrected.
func (s *Store) UpperTime() flight.Time {
	if at, known := s.clock.upperTime(); known && s.cfg.Peers != nil {
		return at
	}
	return s.Now()
}
