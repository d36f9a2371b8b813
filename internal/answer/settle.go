package answer

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// Settling measures the delay between the loss of an attempt and its first verification by the monotonic clock of this
// process, from the time at which the process first saw the loss. By the ledger's time alone, a delay would end too
// early if a wall clock is set ahead while flightd starts.
type Settling struct {
	mu   sync.Mutex // guards seen
	seen map[flight.ID]settle
}

type settle struct {
	attempt uint32
	until   time.Time
}

// maxSettling is the number of delays above which old ones are deleted: those of flights that other processes settled.
const maxSettling = 1024

// Remaining returns the rest of the delay for the flight's newest attempt. The first call for an attempt starts the
// delay. Later verifications of the same attempt wait only for their backoff, which the ledger measures.
func (s *Settling) Remaining(f *flight.Flight) time.Duration {
	if !f.Looking() || f.Probe.Tries > 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.seen[f.ID]
	if !ok || known.attempt != f.AttemptNumber() {
		if s.seen == nil {
			s.seen = make(map[flight.ID]settle)
		}
		delay := cmp.Or(f.Policy.SettleDelay, f.Policy.AttemptTimeout+flight.PauseBound)
		known = settle{attempt: f.AttemptNumber(), until: time.Now().Add(delay)}
		if len(s.seen) >= maxSettling {
			maps.DeleteFunc(s.seen, func(_ flight.ID, old settle) bool { return time.Since(old.until) > flight.MaxOpenLife })
		}
		s.seen[f.ID] = known
	}
	return time.Until(known.until)
}

// Forget deletes the delay of a flight of which a verification was answered.
func (s *Settling) Forget(id flight.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}
