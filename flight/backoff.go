package flight

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// maxLookBackoff caps the pause between look-ups that could not find out.
const maxLookBackoff = 5 * time.Minute

// Backoff is the pause after the given number of counted attempts: doubling from MinBackoff to MaxBackoff, and of
// that between half and all, drawn by the flight's id, so that every node computes the same and flights do not march
// in step. It is 0 where no policy is declared.
func (r RetryPolicy) Backoff(id ID, attempts int) time.Duration {
	if !r.Declared() || r.MinBackoff <= 0 {
		return 0
	}
	d := double(r.MinBackoff, attempts-1, max(r.MaxBackoff, r.MinBackoff))
	spread := binary.BigEndian.Uint32(id[(attempts*3)%13:])
	part, _ := bits.Mul64(uint64(d/2), uint64(spread)<<32) // in integers: every node must compute the same
	return d/2 + time.Duration(part)
}

// lookBackoff is the pause before the look-up that follows so many without a result.
func lookBackoff(tries int) time.Duration { return double(time.Second, tries-1, maxLookBackoff) }

func double(d time.Duration, times int, cap time.Duration) time.Duration {
	for range times {
		if d > cap/2 {
			return cap
		}
		d *= 2
	}
	return min(d, cap)
}

func (p Policy) settleDelay() time.Duration {
	if p.SettleDelay > 0 {
		return p.SettleDelay
	}
	return p.AttemptTimeout + PauseBound
}

// lookTime is how long nobody else is sent to ask the provider while a caller does.
func (p Policy) lookTime() time.Duration {
	const usual = 2 * PauseBound
	if p.AttemptTimeout > 0 {
		return p.AttemptTimeout + PauseBound
	}
	return usual
}

func (p Policy) lookTries() int {
	if p.LookTries > 0 {
		return p.LookTries
	}
	return DefaultLookTries
}
