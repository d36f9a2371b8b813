package answer

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// VerifyDelays measures the delay between the loss of an attempt and its first verification by the monotonic clock of this
// process, from the time at which the process first saw the loss. By the ledger's time alone, a delay would end too
// early if a wall clock is set ahead while flightd starts.
type VerifyDelays struct {
	mu     sync.Mutex // guards seen
	delays map[flight.ID]verifyDelay
}

type verifyDelay struct {
	attempt uint32
	until   time.Time
}

// maxDelays is the number of delays above which old ones are deleted: those of flights that other processes settled.
const maxDelays = 1024

// Remaining returns the rest of the delay for the flight's newest attempt. The first call for an attempt starts the
// delay. Later verifications of the same attempt wait only for their backoff, which the ledger measures.
func (d *VerifyDelays) Remaining(f *flight.Flight) time.Duration {
	if !f.Verifying() || f.Verification.Tries > 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known, ok := d.delays[f.ID]
	if !ok || known.attempt != f.AttemptNumber() {
		if d.delays == nil {
			d.delays = make(map[flight.ID]verifyDelay)
		}
		delay := cmp.Or(f.Policy.SettleDelay, f.Policy.AttemptTimeout+flight.PauseBound)
		known = verifyDelay{attempt: f.AttemptNumber(), until: time.Now().Add(delay)}
		if len(d.delays) >= maxDelays {
			maps.DeleteFunc(d.delays, func(_ flight.ID, old verifyDelay) bool { return time.Since(old.until) > flight.MaxOpenLife })
		}
		d.delays[f.ID] = known
	}
	return time.Until(known.until)
}

// Delete deletes the delay of a flight of which a verification was answered.
func (d *VerifyDelays) Delete(id flight.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.delays, id)
}
