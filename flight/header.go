package flight

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Header is the part of the ledger that every command sees.
type Header struct {
	Deployment   string  `cbor:"1,keyasint,omitempty"`  // created once, at the first bootstrap
	Secret       []byte  `cbor:"2,keyasint,omitempty"`  // seals fencing tokens
	LeaseEpoch   uint32  `cbor:"3,keyasint,omitempty"`  // raised by an operator after etcd lost data
	StoreEpoch   uint32  `cbor:"4,keyasint,omitempty"`  // raised by every restore of the ledger
	GuardCounter uint64  `cbor:"5,keyasint,omitempty"`  // counter of etcd's guard key in this lease epoch, as last recorded
	Now          Time    `cbor:"6,keyasint,omitempty"`  // stamped by the leader, never falls
	EpochHold    Time    `cbor:"7,keyasint,omitempty"`  // until then no attempt of an older lease epoch is marked lost
	Version      Version `cbor:"8,keyasint,omitzero"`   // of the command being applied
	Wall         Time    `cbor:"9,keyasint,omitempty"`  // the leader's wall clock beside Now, where it was later; else 0
	Level        uint32  `cbor:"10,keyasint,omitempty"` // the feature level; 0 is LevelBase
	Reconciling  bool    `cbor:"11,keyasint,omitempty"` // restored: nothing opens before FinishRestore, which waits for EpochHold
	RestoredFrom uint32  `cbor:"12,keyasint,omitempty"` // the store epoch that the last Restore left; 0: never restored

	// Steps is the sum of all steps of the ledger's clock; see Flight.HolderTime.
	Steps time.Duration `cbor:"13,keyasint,omitempty"`
}

// Latest is now, plus the lead that the leader's wall clock had over the ledger's time at the last stamp. A permission to act
// that must end in time is compared with it, so that a slow ledger clock cannot extend the permission.
func (h *Header) Latest(now Time) Time { return now + max(0, h.Wall-h.Now) }

// tick sets the ledger's time forward to c.StepTo. The time of every holder moves by the step: nothing that a holder may count
// on ends because of it.
func (t *transition) tick(c *Tick) Decision {
	h := &t.header
	step := c.StepTo.Until(h.Now)
	if step <= 0 {
		return DecisionAccepted // a repeat, or no step
	}
	h.Now, h.Steps = c.StepTo, h.Steps+step
	if h.EpochHold > 0 {
		h.EpochHold = h.EpochHold.Add(step)
	}
	return DecisionAccepted
}

// TokenOf is the fencing token under which an attempt may report to this ledger: its number in the present store epoch.
// An attempt that was opened before a restore thereby gets a new token; it may also report under its first one.
func (h *Header) TokenOf(a *Attempt) Token { return Token{StoreEpoch: h.StoreEpoch, Number: a.Number} }

// IdempotencyKey is sent to the provider with every attempt of a generation, so that the provider can distinguish a resend
// from a second intent. It has 64 characters and depends on deployment, key and generation alone.
func (h *Header) IdempotencyKey(k Key, generation uint32) string {
	var stack [256]byte // longer keys are moved to the heap
	b := stack[:0]
	key := k.String()
	for _, part := range [...]string{h.Deployment, key} {
		b = strconv.AppendInt(b, int64(len(part)), 10)
		b = append(append(b, ':'), part...)
	}
	var digits [10]byte
	number := strconv.AppendUint(digits[:0], uint64(generation), 10)
	b = strconv.AppendInt(b, int64(len(number)), 10)
	b = append(append(b, ':'), number...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
