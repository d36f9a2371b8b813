package flight

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// maxVerifyBackoff caps the pause between inconclusive look-ups.
const maxVerifyBackoff = 5 * time.Minute

// Backoff is the pause after the given number of counted attempts. It doubles from MinBackoff to MaxBackoff; the flight's id
// selects a value between half of it and all of it, so that every node computes the same pause and the retries of many
// flights are spread. It is 0 where no policy is declared.
func (r RetryPolicy) Backoff(id ID, attempts int) time.Duration {
	if !r.Declared() || r.MinBackoff <= 0 {
		return 0
	}
	d := doubledUpTo(r.MinBackoff, attempts-1, max(r.MaxBackoff, r.MinBackoff))
	spread := binary.BigEndian.Uint32(id[(attempts*3)%13:])
	part, _ := bits.Mul64(uint64(d/2), uint64(spread)<<32) // integer arithmetic: every node must compute the same pause
	return d/2 + time.Duration(part)
}

// verifyBackoff is the pause after the given number of inconclusive look-ups.
func verifyBackoff(tries int) time.Duration {
	return doubledUpTo(time.Second, tries-1, maxVerifyBackoff)
}

func doubledUpTo(d time.Duration, times int, cap time.Duration) time.Duration {
	for range times {
		if d > cap/2 {
			return cap
		}
		d *= 2
	}
	return min(d, cap)
}

// Settling is the time from the loss of an attempt after which its request reaches the provider no more: SettleDelay, or what follows from the other fields.
func (p Policy) Settling() time.Duration {
	if p.SettleDelay > 0 {
		return p.SettleDelay
	}
	return p.AttemptTimeout + PauseBound
}

// verifyTimeout is the time for which one caller is assigned to ask the provider. Then another caller may be assigned.
func (p Policy) verifyTimeout() time.Duration {
	const usual = 2 * PauseBound
	if p.AttemptTimeout > 0 {
		return p.AttemptTimeout + PauseBound
	}
	return usual
}

func (p Policy) verifyAttempts() int {
	if p.VerifyAttempts > 0 {
		return p.VerifyAttempts
	}
	return DefaultVerifyAttempts
}
