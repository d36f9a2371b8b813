package flight

import (
	"fmt"
	"time"
)

// Policy is declared by the first caller of a flight. It never changes.
type Policy struct {
	Recovery       Recovery      `cbor:"1,keyasint,omitempty"`
	AttemptTimeout time.Duration `cbor:"2,keyasint,omitempty"` // 0: no time-out
	SettleDelay    time.Duration `cbor:"3,keyasint,omitempty"` // from the loss of an attempt to the first look-up
	ProviderWindow time.Duration `cbor:"4,keyasint,omitempty"` // time for which the provider remembers our key; 0: unlimited
	Lookup         bool          `cbor:"5,keyasint,omitempty"` // the provider can be asked, whatever the recovery
	VerifyAttempts int           `cbor:"6,keyasint,omitempty"` // inconclusive look-ups until a person is needed; 0: DefaultVerifyAttempts
	Retry          RetryPolicy   `cbor:"7,keyasint,omitzero"`
	Retention      time.Duration `cbor:"8,keyasint,omitempty"` // from the end of the flight to its tombstone; 0: DefaultRetention
	Approval       bool          `cbor:"9,keyasint,omitempty"`
	RunAfter       time.Duration `cbor:"10,keyasint,omitempty"` // from submission to the first attempt
	Saga           bool          `cbor:"11,keyasint,omitempty"` // the flight's handler is the saga driver
	ApprovalWithin time.Duration `cbor:"12,keyasint,omitempty"` // with Approval: from the submission to its rejection if nobody decides; 0: unlimited
	Definition     string        `cbor:"13,keyasint,omitempty"` // of a saga: NAME@VERSION
	SafeIfAbsent   bool          `cbor:"14,keyasint,omitempty"` // of a step: its undo does no harm if the step has not happened
}

// Defaults of a policy.
const (
	DefaultRetention      = 30 * 24 * time.Hour
	DefaultVerifyAttempts = 8
	// PauseBound is the longest time after its time-out at which a machine that was frozen may still send a request.
	PauseBound = 15 * time.Second
)

// CanLookUp reports whether the provider can be asked for the outcome.
func (p Policy) CanLookUp() bool { return p.Lookup || p.Recovery == RecoveryVerify }

// RetryPolicy bounds the automatic retries of an effect that surely did not happen. The zero policy is for caller-run
// flights: the next caller may open the flight again at once.
type RetryPolicy struct {
	Attempts   int           `cbor:"1,keyasint,omitempty"` // in one generation, the first one included
	MinBackoff time.Duration `cbor:"2,keyasint,omitempty"`
	MaxBackoff time.Duration `cbor:"3,keyasint,omitempty"`
	Within     time.Duration `cbor:"4,keyasint,omitempty"` // from the first attempt; 0: no bound
}

// Declared reports whether a retry policy was declared.
func (r RetryPolicy) Declared() bool { return r.Attempts > 0 }

// MaxPolicyTime is the longest duration that a policy may contain.
const MaxPolicyTime = 3660 * 24 * time.Hour

// Validate rejects a policy with an unknown recovery, a negative count or a duration out of range. Errors are *InvalidError.
// The ledger does not call it and stores any policy as declared, so every caller must validate before it proposes.
func (p Policy) Validate() error {
	if int(p.Recovery) >= len(recoveryNames) {
		return &InvalidError{Field: "recovery", Detail: "a recovery is hold, resend or verify"}
	}
	for _, tries := range [...]struct {
		field string
		n     int
	}{{"verify_attempts", p.VerifyAttempts}, {"retry.attempts", p.Retry.Attempts}} {
		if tries.n < 0 {
			return &InvalidError{Field: tries.field, Detail: fmt.Sprintf("%d is negative", tries.n)}
		}
	}
	for _, span := range [...]struct {
		field string
		d     time.Duration
	}{
		{"attempt_timeout", p.AttemptTimeout}, {"settle_delay", p.SettleDelay}, {"provider_window", p.ProviderWindow},
		{"retention", p.Retention}, {"run_after", p.RunAfter}, {"approval_within", p.ApprovalWithin},
		{"retry.min_backoff", p.Retry.MinBackoff}, {"retry.max_backoff", p.Retry.MaxBackoff}, {"retry.within", p.Retry.Within},
	} {
		if span.d < 0 || span.d > MaxPolicyTime || span.d > 0 && span.d < time.Millisecond {
			return &InvalidError{Field: span.field, Detail: fmt.Sprintf("it is %v; allowed is 0, and 1ms to %v", span.d, MaxPolicyTime)}
		}
	}
	if p.ApprovalWithin > 0 && !p.Approval {
		return &InvalidError{Field: "approval_within", Detail: "it is the time for an approval, and the policy demands none"}
	}
	return nil
}

func (p Policy) retention() time.Duration {
	if p.Retention > 0 {
		return p.Retention
	}
	return DefaultRetention
}
