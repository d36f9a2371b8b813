package answer

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// Settling measures settle delays by this process's own monotonic clock, from the moment at which it first saw that an
// attempt was lost. The ledger's time alone would cut a delay short when a wall clock is set ahead while flightd starts.
type Settling struct {
	mu   sync.Mutex
	seen map[flight.ID]settle
}

type settle struct {
	attempt uint32
	until   time.Time
}

// maxSettling is how many delays are kept before those that are long over are dropped: flights that others settled.
const maxSettling = 1024

// Remaining is how much is left of the settle delay of the flight's newest attempt. The first call for an attempt starts
// it. Later look-ups at the same attempt wait only for their backoff, which is the ledger's.
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

// Forget drops the delay of a flight whose look-up was answered.
func (s *Settling) Forget(id flight.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}
