package flight

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Bounds of a flight's record.
const (
	// MaxInput is the maximum length of an input in bytes.
	MaxInput = 256 << 10
	// MaxReceiptBody is the number of stored bytes of a receipt's body. A longer body is truncated and marked as truncated.
	MaxReceiptBody = 64 << 10
	// MaxEvidence is the number of fenced reports that a flight stores in full. Further reports are only counted.
	MaxEvidence = 16
	// MaxAttempts is the number of attempts that a flight stores in full, the newest ones. The history has them all.
	MaxAttempts = 16
	// MaxUsedNonces is the number of used nonces that a flight remembers. Beyond that, the answer to an Open or Abandon is
	// DecisionExhausted.
	MaxUsedNonces = 256
	// MaxText is the maximum length in bytes of an error, a reason, a name or an external id in the ledger.
	MaxText = 1024
)

// Time is ledger time: milliseconds since 1970 as the leader stamped them into the log. It never goes back.
type Time int64

// AsTime returns t as a time.Time in UTC.
func (t Time) AsTime() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add returns t+d in milliseconds, rounded up so that a delay is never cut short.
func (t Time) Add(d time.Duration) Time {
	t += Time(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		t++
	}
	return t
}

// Until returns the duration from now to t; it is negative when t has passed.
func (t Time) Until(now Time) time.Duration { return time.Duration(t-now) * time.Millisecond }

// Version is the log position of the command that last changed a flight: raft index, and position in the entry.
type Version struct {
	Index uint64 `cbor:"1,keyasint,omitempty"`
	Pos   uint32 `cbor:"2,keyasint,omitempty"`
}

// String returns the version in the form of an ETag or event id: 8123.4.
func (v Version) String() string {
	return strconv.FormatUint(v.Index, 10) + "." + strconv.FormatUint(uint64(v.Pos), 10)
}

// After reports whether v is after other in the log.
func (v Version) After(other Version) bool {
	return v.Index > other.Index || v.Index == other.Index && v.Pos > other.Pos
}

// ParseVersion parses the form that Version.String returns. Errors are *InvalidError.
func ParseVersion(s string) (Version, error) {
	index, pos, ok := strings.Cut(s, ".")
	i, err1 := strconv.ParseUint(index, 10, 64)
	p, err2 := strconv.ParseUint(pos, 10, 32)
	v := Version{Index: i, Pos: uint32(p)}
	if !ok || err1 != nil || err2 != nil || v.String() != s {
		return Version{}, &InvalidError{Field: "version", Detail: "a version reads like 8123.4"}
	}
	return v, nil
}

// Digest is a SHA-256 sum.
type Digest [sha256.Size]byte

// String returns "sha256:" and the digest in hex.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// IsZero reports whether d is the zero Digest: no digest was computed.
func (d Digest) IsZero() bool { return d == Digest{} }

// Blob is a flight's input or a receipt's body. The bytes are not part of a flight's record: the ledger stores them
// separately, and reads them only on request.
type Blob struct {
	ContentType string `cbor:"1,keyasint,omitempty"`
	Size        int    `cbor:"2,keyasint,omitempty"` // full length in bytes, also when truncated
	StoredSize  int    `cbor:"3,keyasint,omitempty"` // number of stored bytes
	Digest      Digest `cbor:"4,keyasint,omitzero"`  // over all Size bytes
	Data        []byte `cbor:"5,keyasint,omitempty"` // the stored bytes; nil where a record is read without them
}

// NewBlob computes the digest of data and stores at most limit bytes of it. The blob aliases data.
func NewBlob(contentType string, data []byte, limit int) Blob {
	b := Blob{ContentType: contentType, Size: len(data), Digest: sha256.Sum256(data), Data: data}
	if len(data) > limit {
		b.Data = data[:limit:limit]
	}
	b.StoredSize = len(b.Data)
	return b
}

// Truncated reports whether only the first StoredSize bytes are stored.
func (b Blob) Truncated() bool { return b.StoredSize < b.Size }

// WithoutData returns the blob as it is stored in a flight's record.
func (b Blob) WithoutData() Blob { b.Data = nil; return b }

// Attempt is one try at the effect. While it is open, its holder, a session, is the only one that may act on the key.
type Attempt struct {
	Number           uint32  `cbor:"1,keyasint,omitempty"`
	Session          Session `cbor:"2,keyasint,omitzero"`  // the holder
	Nonce            Nonce   `cbor:"3,keyasint,omitzero"`  // of the Open; with the key it identifies that Open
	Owner            string  `cbor:"4,keyasint,omitempty"` // host:pid or the like, for people
	OpenedAt         Time    `cbor:"5,keyasint,omitempty"`
	ClosedAt         Time    `cbor:"6,keyasint,omitempty"` // 0 while it is open
	Outcome          Outcome `cbor:"7,keyasint,omitempty"`
	Lost             bool    `cbor:"8,keyasint,omitempty"`  // ended by proof or time-out, not by a report
	Taints           bool    `cbor:"9,keyasint,omitempty"`  // its unknown outcome taints the flight
	ReportedOutcomes uint8   `cbor:"10,keyasint,omitempty"` // set of the reported outcomes; see outcomeBit
	Error            string  `cbor:"11,keyasint,omitempty"`
	StoreEpoch       uint32  `cbor:"12,keyasint,omitempty"` // of the ledger that opened it
	NotAfter         Time    `cbor:"13,keyasint,omitempty"` // of the Open; until then its nonce is remembered as used
	Trace            Trace   `cbor:"14,keyasint,omitzero"`  // of the Open; its span is a child of the call's
	Callbacks        []byte  `cbor:"15,keyasint,omitempty"` // recognises repeats of callbacks without success; see recordCallback
}

// Token is the fencing token under which the attempt was opened. A restored ledger gives another one: see Header.TokenOf.
func (a *Attempt) Token() Token { return Token{StoreEpoch: a.StoreEpoch, Number: a.Number} }

// IsOpen reports whether the attempt has not ended.
func (a *Attempt) IsOpen() bool { return a.ClosedAt == 0 }

// Nonce identifies one Open of a key. A caller draws a random nonce for each Open; a repeat of the Open carries the same one.
type Nonce [16]byte

// Receipt is the stored first outcome of a flight. It never changes.
type Receipt struct {
	Outcome    Outcome `cbor:"1,keyasint,omitempty"` // OutcomeSucceeded or OutcomeRefused
	ExternalID string  `cbor:"2,keyasint,omitempty"` // the id of the external object, at most MaxText bytes
	Body       Blob    `cbor:"3,keyasint,omitzero"`
	At         Time    `cbor:"4,keyasint,omitempty"`
	Attempt    uint32  `cbor:"5,keyasint,omitempty"`
	Source     Source  `cbor:"6,keyasint,omitempty"`
}

// Truncated reports whether callers cannot get the whole result from the receipt: only the beginning of its body is stored,
// or nothing, because a person resolved the doubt without a body.
func (r *Receipt) Truncated() bool {
	return r.Body.Truncated() || r.Source == SourcePerson && r.Body.Size == 0
}

// Source is the origin of a receipt.
type Source uint8

// The sources of a receipt.
const (
	SourceReport Source = iota // the attempt reported it
	SourceLookup               // a look-up at the provider found it
	SourcePerson               // a person attached it
	SourceImport               // it was imported: the effect happened before or outside flightd
	// SourceReportAfterRestore: an attempt that the ledger had lost by a restore reported it.
	SourceReportAfterRestore
)

var sourceNames = [...]string{"report", "lookup", "person", "import", "report_after_restore"}

func (s Source) String() string { return wordOf(sourceNames[:], s) }

// SameEffect reports whether two receipts name one external effect: by their external ids where both have one, else
// by their digests (invariant I3).
func (r *Receipt) SameEffect(outcome Outcome, externalID string, digest Digest) bool {
	if outcome != r.Outcome {
		return false
	}
	if r.ExternalID != "" && externalID != "" {
		return r.ExternalID == externalID
	}
	return r.Body.Digest == digest
}

// Evidence is a report that came too late to be accepted. It is stored and shown, and never overwrites anything.
type Evidence struct {
	Token      Token   `cbor:"1,keyasint,omitzero"`
	Generation uint32  `cbor:"2,keyasint,omitempty"`
	Outcome    Outcome `cbor:"3,keyasint,omitempty"`
	ExternalID string  `cbor:"4,keyasint,omitempty"`
	Digest     Digest  `cbor:"5,keyasint,omitzero"`
	At         Time    `cbor:"6,keyasint,omitempty"`
	Error      string  `cbor:"7,keyasint,omitempty"`
}

// Verification is a look-up that is due: a caller must ask the provider whether the effect happened, and report a Finding.
type Verification struct {
	Number    uint32  `cbor:"1,keyasint,omitempty"` // rises with every look-up and with every assigned caller
	NotBefore Time    `cbor:"2,keyasint,omitempty"` // end of the settle delay: an earlier look-up may miss the effect
	Tries     int     `cbor:"3,keyasint,omitempty"` // inconclusive look-ups so far
	Session   Session `cbor:"4,keyasint,omitzero"`  // of the assigned caller; zero: none is assigned, or its session has ended
	Nonce     Nonce   `cbor:"5,keyasint,omitzero"`  // of the Open that was answered DecisionVerify; zero: none yet
	Until     Time    `cbor:"6,keyasint,omitempty"` // until then no other caller is assigned
}

// Attribution records the author, the reason and the time of a request.
type Attribution struct {
	Actor  string `cbor:"1,keyasint,omitempty"`
	Reason string `cbor:"2,keyasint,omitempty"`
	At     Time   `cbor:"3,keyasint,omitempty"`
}

// Resolution is a person's decision. It is stored so that a repeat of the decision gets the same answer.
type Resolution struct {
	Finding Finding     `cbor:"1,keyasint,omitempty"`
	Version Version     `cbor:"2,keyasint,omitzero"` // of the flight that the person had seen
	By      Attribution `cbor:"3,keyasint,omitzero"`
}

// Finding is the answer of a person or of a look-up about an effect in doubt, or of a person about an approval.
type Finding uint8

// The findings of Resolve and ReportFinding, and of DecideApproval.
const (
	FindingNone Finding = iota
	FindingHappened
	FindingNotHappened
	FindingFail
	FindingApproved
	FindingRejected
)

var findingNames = [...]string{"", "happened", "not_happened", "fail", "approved", "rejected"}

func (f Finding) String() string { return wordOf(findingNames[:], f) }

// Wake is the condition that ends StateWaiting.
type Wake struct {
	At       Time `cbor:"1,keyasint,omitempty"` // time at which a saga wakes, or a callback is overdue; 0: only a command wakes it
	Callback bool `cbor:"2,keyasint,omitempty"` // the attempt stays the newest one, and no session holds the key
	// Live is how many steps and undos of the saga were not over when its driver had looked at all of them and had submitted what it
	// had to. The saga is due as soon as there are fewer.
	Live   uint8 `cbor:"3,keyasint,omitempty"`
	Marked bool  `cbor:"4,keyasint,omitempty"` // the driver has seen that the saga is cancelled
}

// Phase is the direction of a saga. It changes once: from forward to undoing, or to committed.
type Phase uint8

// The phases of a saga. Every other flight has PhaseNone.
const (
	PhaseNone Phase = iota
	PhaseForward
	PhaseUndoing
	PhaseCommitted // the pivot has succeeded: from here on only forward
)

// UsedNonce is a nonce that opens nothing more. It is remembered until every Open that carries it has expired.
type UsedNonce struct {
	Nonce Nonce `cbor:"1,keyasint,omitzero"`
	Until Time  `cbor:"2,keyasint,omitempty"`
}

// PreviousGeneration is the stored summary of an earlier generation of a key.
type PreviousGeneration struct {
	Generation uint32      `cbor:"1,keyasint,omitempty"`
	State      State       `cbor:"2,keyasint,omitempty"`
	Receipt    *Receipt    `cbor:"3,keyasint,omitempty"`
	EndedBy    Attribution `cbor:"4,keyasint,omitzero"`
}

// Flight is the durable record of one key. A value that the ledger has returned is immutable: Apply copies it.
//
// A tombstone is a Flight in StateExpired with only the fields that still guard the key: ID, generation, fence,
// fingerprint, and the receipt's outcome and digest.
type Flight struct {
	ID                  ID                   `cbor:"1,keyasint"`
	Key                 Key                  `cbor:"2,keyasint,omitzero"` // zero in a tombstone
	Generation          uint32               `cbor:"3,keyasint,omitempty"`
	State               State                `cbor:"4,keyasint,omitempty"`
	Version             Version              `cbor:"5,keyasint,omitzero"`
	Fingerprint         Fingerprint          `cbor:"6,keyasint,omitzero"`
	Input               Blob                 `cbor:"7,keyasint,omitzero"`
	Policy              Policy               `cbor:"8,keyasint,omitzero"`
	Fence               Token                `cbor:"9,keyasint,omitzero"`   // greatest store epoch and number of any attempt of the key
	Attempts            []Attempt            `cbor:"10,keyasint,omitempty"` // of this generation, newest last, at most MaxAttempts
	AttemptCount        uint32               `cbor:"11,keyasint,omitempty"` // of this generation, all of them
	CountedAttempts     uint32               `cbor:"12,keyasint,omitempty"` // attempts that the retry policy counts
	TaintingAttempts    uint32               `cbor:"13,keyasint,omitempty"` // attempts of unknown outcome that taint the flight
	FirstSend           Time                 `cbor:"14,keyasint,omitempty"` // of the generation's first attempt: the provider window starts
	NotBefore           Time                 `cbor:"15,keyasint,omitempty"` // of a scheduled flight
	Verification        *Verification        `cbor:"16,keyasint,omitempty"` // set exactly while a look-up is due
	Verifications       uint32               `cbor:"17,keyasint,omitempty"` // number of the last look-up
	Cancel              *Attribution         `cbor:"18,keyasint,omitempty"` // cancellation was requested
	Receipt             *Receipt             `cbor:"19,keyasint,omitempty"`
	CreatedAt           Time                 `cbor:"20,keyasint,omitempty"`
	FinishedAt          Time                 `cbor:"21,keyasint,omitempty"`
	Evidence            []Evidence           `cbor:"22,keyasint,omitempty"` // at most MaxEvidence
	EvidenceOmitted     uint32               `cbor:"23,keyasint,omitempty"` // fenced reports that were counted and not stored
	Overlap             bool                 `cbor:"24,keyasint,omitempty"` // evidence of a second effect was seen
	UsedNonces          []UsedNonce          `cbor:"25,keyasint,omitempty"` // at most MaxUsedNonces, not counting those of ended attempts
	PreviousGenerations []PreviousGeneration `cbor:"26,keyasint,omitempty"`
	Resolution          *Resolution          `cbor:"27,keyasint,omitempty"`
	Wake                *Wake                `cbor:"28,keyasint,omitempty"` // set exactly in StateWaiting
	Phase               Phase                `cbor:"29,keyasint,omitempty"`
	Sealed              bool                 `cbor:"30,keyasint,omitempty"`
	Cause               string               `cbor:"31,keyasint,omitempty"` // why it is in doubt, failed or cancelled
	InputGeneration     uint32               `cbor:"32,keyasint,omitempty"` // generation that submitted the input; its bytes are stored under it
	FinalState          State                `cbor:"33,keyasint,omitempty"` // of a tombstone: the state in which the flight ended
	Redacted            *Attribution         `cbor:"34,keyasint,omitempty"` // the bytes of its input and receipt were erased
	Duplicates          *DuplicateStats      `cbor:"35,keyasint,omitempty"` // of all generations; nil: none
	Steps               time.Duration        `cbor:"36,keyasint,omitempty"` // Header.Steps when the time of its present holder, or of its settling, began
	Place               *Place               `cbor:"37,keyasint,omitempty"` // of a job; nil: no worker claims the flight
	Requester           string               `cbor:"38,keyasint,omitempty"` // who asks for this generation: for its approval, for the saga, or as a person
	Ended               Version              `cbor:"39,keyasint,omitzero"`  // of a step: version of the command that ended it; undos go by it
	Unknown             bool                 `cbor:"40,keyasint,omitempty"` // of a step: it has ended, and nobody knows whether it has happened
}

// Tainted reports whether the outcome of an attempt of this generation is unknown: its effect may have happened.
func (f *Flight) Tainted() bool { return f.TaintingAttempts > 0 }

// Newest is the newest attempt of this generation, nil when there is none. It must not be changed.
func (f *Flight) Newest() *Attempt {
	if f == nil || len(f.Attempts) == 0 {
		return nil
	}
	return &f.Attempts[len(f.Attempts)-1]
}

// UnrunSince returns when a person resolved that the effect did not happen, if no attempt was opened since then: the flight
// waits for a caller, and perhaps no caller comes. It returns 0 for every other flight.
func (f *Flight) UnrunSince() Time {
	r := f.Resolution
	if r == nil || r.Finding != FindingNotHappened || f.State != StateReady && f.State != StateScheduled {
		return 0
	}
	if a := f.Newest(); a != nil && a.OpenedAt > r.By.At {
		return 0
	}
	return r.By.At
}

// AttemptNumber is the number of the newest attempt of this generation, 0 when there is none.
func (f *Flight) AttemptNumber() uint32 {
	if a := f.Newest(); a != nil {
		return a.Number
	}
	return 0
}

// OpenAttempt is the attempt that is open, nil when there is none (invariant I1: there is at most one).
func (f *Flight) OpenAttempt() *Attempt {
	if a := f.Newest(); a != nil && a.IsOpen() {
		return a
	}
	return nil
}

// Deadline is the ledger time at which the open attempt is marked lost although its session lives, or 0 for never. It is the end of
// the callback that the attempt waits for. Else it follows from the attempt's time-out: a holder may start the effect until
// the time-out has passed since it first sent the Open, by its own clock. The deadline is later than that: by a tenth for
// clock drift, and by PauseBound for a machine that was frozen.
func (f *Flight) Deadline(h *Header) Time {
	switch a := f.OpenAttempt(); {
	case a == nil:
		return 0
	case f.State == StateWaiting:
		return f.HolderTime(h, f.Wake.At)
	case f.Policy.AttemptTimeout <= 0 || f.Policy.Saga:
		return 0
	default:
		timeout := f.Policy.AttemptTimeout
		return f.HolderTime(h, a.OpenedAt.Add(timeout+timeout/10+PauseBound))
	}
}

// HolderTime converts the end of a holder's time, as it is stored in the flight, to ledger time; 0 stays 0. The ledger's clock
// may step forward at a start, and the wall clock to which it steps may be wrong. A holder measures its time by its own clock.
// So the end of its time moves by every step since its time began. The times of callers and providers do not move: NotBefore
// of a scheduled flight, NotAfter of an Open, the provider window and the retention.
func (f *Flight) HolderTime(h *Header, stored Time) Time {
	if stored == 0 {
		return 0
	}
	return stored.Add(h.Steps - f.Steps)
}

// Holder is the session that holds the key: the session of the open attempt, or of the caller that is assigned to ask the
// provider; nil where no session holds it. An attempt that waits for its callback has no holder, and neither has a saga.
func (f *Flight) Holder() *Session {
	switch {
	case f == nil:
	case f.State == StateRunning && f.OpenAttempt() != nil && !f.Policy.Saga:
		return &f.Newest().Session
	case f.Verification != nil && f.Verification.Session != Session{}:
		return &f.Verification.Session
	}
	return nil
}

// Verifying reports whether the flight waits for the finding of a look-up.
func (f *Flight) Verifying() bool { return f != nil && f.Verification != nil }

// Submitted reports whether the flight has a submission. A flight that a restored ledger knows only by a report has none.
func (f *Flight) Submitted() bool { return f.InputGeneration != 0 }

// Reopenable reports whether a person may let the flight run again: it ended without a receipt, and its input is stored.
func (f *Flight) Reopenable() bool {
	return (f.State == StateFailed || f.State == StateCancelled) && f.Receipt == nil && !f.Sealed && f.Redacted == nil && f.Submitted()
}

// reopened reports whether the present generation began when a person ended the given one: by a retry, which keeps the input of an earlier
// generation, or else by a free. A tombstone does not know it.
func (f *Flight) reopened(generation uint32, retried bool) bool {
	keepsInput := f.Submitted() && f.InputGeneration < f.Generation
	return f.Generation == generation+1 && len(f.PreviousGenerations) > 0 && keepsInput == retried
}

// HasFinalReceipt reports whether every caller gets the stored receipt until a person frees or redacts the key, or its retention ends.
func (f *Flight) HasFinalReceipt() bool {
	return f != nil && (f.State == StateSucceeded || f.State == StateFailed) && f.Receipt != nil && f.Redacted == nil
}

// ExpiresAt is when the retention of a finished flight ends, or 0 while it is not finished.
func (f *Flight) ExpiresAt() Time {
	if f.FinishedAt == 0 {
		return 0
	}
	return f.FinishedAt.Add(f.Policy.retention())
}

// DeletableAt is the time from which the record of a key that was never opened may be deleted: the record holds nothing but
// used nonces, and the last of them has expired. It is 0 for a record that holds more than used nonces.
func (f *Flight) DeletableAt() Time {
	if f == nil || f.State != StateAbsent || f.Generation != 1 || !f.Fence.IsZero() || f.Overlap ||
		len(f.Evidence)+len(f.PreviousGenerations) > 0 || f.EvidenceOmitted > 0 {
		return 0
	}
	var last Time
	for _, u := range f.UsedNonces {
		last = max(last, u.Until)
	}
	return last + 1
}
