package flight

import (
	"fmt"
	"time"
)

// MaxPolicyTime is the longest duration that a policy may name.
const MaxPolicyTime = 3660 * 24 * time.Hour

// Check says what of a policy cannot be meant; nil: nothing. Errors are *InvalidError. The ledger does not ask: it keeps
// what was declared, for ever, so its caller must.
func (p Policy) Check() error {
	if int(p.Recovery) >= len(recoveryNames) {
		return &InvalidError{Field: "recovery", Detail: "a recovery is hold, resend or verify"}
	}
	for _, tries := range [...]struct {
		field string
		n     int
	}{{"look_tries", p.LookTries}, {"retry.attempts", p.Retry.Attempts}} {
		if tries.n < 0 {
			return &InvalidError{Field: tries.field, Detail: fmt.Sprintf("%d is no number of tries", tries.n)}
		}
	}
	for _, span := range [...]struct {
		field string
		d     time.Duration
	}{
		{"attempt_timeout", p.AttemptTimeout}, {"settle_delay", p.SettleDelay}, {"provider_window", p.ProviderWindow},
		{"retention", p.Retention}, {"run_after", p.RunAfter},
		{"retry.min_backoff", p.Retry.MinBackoff}, {"retry.max_backoff", p.Retry.MaxBackoff}, {"retry.within", p.Retry.Within},
	} {
		if span.d < 0 || span.d > MaxPolicyTime {
			return &InvalidError{Field: span.field, Detail: fmt.Sprintf("it is %v; allowed is 0 to %v", span.d, MaxPolicyTime)}
		}
	}
	return nil
}
