package flight

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Bounds of what a flight keeps.
const (
	// MaxInput is the greatest length of an input in bytes.
	MaxInput = 256 << 10
	// MaxReceiptBody is how many bytes of a receipt's body are kept; a longer one is shortened and marked so.
	MaxReceiptBody = 64 << 10
	// MaxEvidence is how many fenced reports a flight keeps in full; later ones are counted.
	MaxEvidence = 16
	// MaxAttempts is how many attempts a flight keeps in full, the newest ones; the history has them all.
	MaxAttempts = 16
	// MaxUsedNonces is how many used nonces a flight remembers; an Open or Abandon beyond that is Exhausted.
	MaxUsedNonces = 256
	// MaxText is the greatest length in bytes of an error, a reason, a name or an external id in the ledger.
	MaxText = 1024
)

// Time is ledger time: milliseconds since 1970 as the leader stamped them into the log. It never goes back.
type Time int64

// At gives t as a time in UTC.
func (t Time) At() time.Time { return time.UnixMilli(int64(t)).UTC() }

// Add gives the moment d later, to the millisecond, rounded up so that a delay is never cut short.
func (t Time) Add(d time.Duration) Time {
	t += Time(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		t++
	}
	return t
}

// Until is the time from now to t; negative when t has passed.
func (t Time) Until(now Time) time.Duration { return time.Duration(t-now) * time.Millisecond }

// Version is the position in the log of the command that last changed a flight: raft index, and place in the entry.
type Version struct {
	Index uint64 `cbor:"1,keyasint,omitempty"`
	Pos   uint32 `cbor:"2,keyasint,omitempty"`
}

// String gives the version as ETag and event id show it: 8123.4.
func (v Version) String() string {
	return strconv.FormatUint(v.Index, 10) + "." + strconv.FormatUint(uint64(v.Pos), 10)
}

// Later reports whether v is after other in the log.
func (v Version) Later(other Version) bool {
	return v.Index > other.Index || v.Index == other.Index && v.Pos > other.Pos
}

// ParseVersion reads what Version.String wrote. Errors are *InvalidError.
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

// String gives the digest as sha256: and hex.
func (d Digest) String() string { return "sha256:" + hex.EncodeToString(d[:]) }

// IsZero reports whether no digest was taken.
func (d Digest) IsZero() bool { return d == Digest{} }

// Blob is a body of bytes: a flight's input or a receipt's body. The bytes themselves are not part of a flight's
// record; the ledger keeps them beside it and gives them back only to a reader who asks.
type Blob struct {
	ContentType string `cbor:"1,keyasint,omitempty"`
	Size        int    `cbor:"2,keyasint,omitempty"` // full length in bytes, also when shortened
	Kept        int    `cbor:"3,keyasint,omitempty"` // how many of them are kept
	Digest      Digest `cbor:"4,keyasint,omitzero"`  // over all Size bytes
	Data        []byte `cbor:"5,keyasint,omitempty"` // the kept bytes; nil where a record is read without them
}

// NewBlob takes the digest of data and keeps at most limit bytes of it. It keeps data itself, not a copy.
func NewBlob(contentType string, data []byte, limit int) Blob {
	b := Blob{ContentType: contentType, Size: len(data), Digest: sha256.Sum256(data), Data: data}
	if len(data) > limit {
		b.Data = data[:limit:limit]
	}
	b.Kept = len(b.Data)
	return b
}

// Truncated reports whether only the first Kept bytes are left.
func (b Blob) Truncated() bool { return b.Kept < b.Size }

// WithoutData is the blob as a flight's record holds it.
func (b Blob) WithoutData() Blob { b.Data = nil; return b }

// Policy is what was declared for a flight by its first caller. It never changes.
type Policy struct {
	Recovery       Recovery      `cbor:"1,keyasint,omitempty"`
	AttemptTimeout time.Duration `cbor:"2,keyasint,omitempty"` // 0: an attempt may take as long as it likes
	SettleDelay    time.Duration `cbor:"3,keyasint,omitempty"` // from the loss of an attempt to the first look-up
	ProviderWindow time.Duration `cbor:"4,keyasint,omitempty"` // how long the provider remembers our key; 0: for ever
	Lookup         bool          `cbor:"5,keyasint,omitempty"` // the provider can be asked, whatever the recovery
	LookTries      int           `cbor:"6,keyasint,omitempty"` // look-ups of unknown result until a person is needed; 0: DefaultLookTries
	Retry          RetryPolicy   `cbor:"7,keyasint,omitzero"`
	Retention      time.Duration `cbor:"8,keyasint,omitempty"` // from the end of the flight to its tombstone; 0: DefaultRetention
	Approval       bool          `cbor:"9,keyasint,omitempty"`
	RunAfter       time.Duration `cbor:"10,keyasint,omitempty"` // from submission to the first attempt
	Saga           bool          `cbor:"11,keyasint,omitempty"` // the flight's handler is the saga driver
}

// Defaults of a policy.
const (
	DefaultRetention = 30 * 24 * time.Hour
	DefaultLookTries = 8
	// PauseBound is how long after its time-out a request may still leave a machine that was frozen.
	PauseBound = 15 * time.Second
)

// CanLookUp reports whether the provider can be asked what happened.
func (p Policy) CanLookUp() bool { return p.Lookup || p.Recovery == Verify }

// RetryPolicy says how often an effect that surely did not happen is tried again by itself. The zero policy is that of
// caller-run flights: the flight is free to be opened again at once, by the next opener.
type RetryPolicy struct {
	Attempts   int           `cbor:"1,keyasint,omitempty"` // in one generation, the first one included
	MinBackoff time.Duration `cbor:"2,keyasint,omitempty"`
	MaxBackoff time.Duration `cbor:"3,keyasint,omitempty"`
	Within     time.Duration `cbor:"4,keyasint,omitempty"` // from the first attempt; 0: no bound
}

// Declared reports whether there is a policy at all.
func (r RetryPolicy) Declared() bool { return r.Attempts > 0 }

// Attempt is one try at the effect. While it is open, its holder, a session, is the only one that may act on the key.
type Attempt struct {
	Number     uint32  `cbor:"1,keyasint,omitempty"`
	Session    Session `cbor:"2,keyasint,omitzero"`  // the holder
	Nonce      Nonce   `cbor:"3,keyasint,omitzero"`  // of the Open; with the key it identifies that Open
	Owner      string  `cbor:"4,keyasint,omitempty"` // host:pid or the like, for people
	OpenedAt   Time    `cbor:"5,keyasint,omitempty"`
	ClosedAt   Time    `cbor:"6,keyasint,omitempty"` // 0 while it is open
	Outcome    Outcome `cbor:"7,keyasint,omitempty"`
	Lost       bool    `cbor:"8,keyasint,omitempty"` // ended by proof or time-out, not by a report
	Doubt      bool    `cbor:"9,keyasint,omitempty"` // its unknown outcome taints the flight
	Reported   uint8   `cbor:"10,keyasint,omitempty"`
	Error      string  `cbor:"11,keyasint,omitempty"`
	StoreEpoch uint32  `cbor:"12,keyasint,omitempty"` // of the ledger that opened it
	NotAfter   Time    `cbor:"13,keyasint,omitempty"` // of the Open; until then its nonce is remembered as used
}

// Token is the fencing token that the attempt got when it opened. See Header.TokenOf.
func (a *Attempt) Token() Token { return Token{StoreEpoch: a.StoreEpoch, Number: a.Number} }

// Deadline is the ledger time at which an open attempt is taken for lost although its session lives; 0: never. A holder may
// start the effect until the attempt's time-out has passed since it first sent the Open, by its own clock. The deadline is
// later than that: by a tenth for clocks that drift apart, and by PauseBound for a machine that was frozen.
func (a *Attempt) Deadline(p Policy) Time {
	if p.AttemptTimeout <= 0 {
		return 0
	}
	return a.OpenedAt.Add(p.AttemptTimeout + p.AttemptTimeout/10 + PauseBound)
}

// Open reports whether the attempt has not ended.
func (a *Attempt) Open() bool { return a.ClosedAt == 0 }

// Nonce is chosen at random by a caller, one for each open that it wants. A repeat of the open carries the same nonce.
type Nonce [16]byte

// Receipt is the stored first outcome of a flight. It never changes.
type Receipt struct {
	Outcome    Outcome `cbor:"1,keyasint,omitempty"` // Succeeded or Refused
	ExternalID string  `cbor:"2,keyasint,omitempty"` // the id of the external object, always whole
	Body       Blob    `cbor:"3,keyasint,omitzero"`
	At         Time    `cbor:"4,keyasint,omitempty"`
	Attempt    uint32  `cbor:"5,keyasint,omitempty"`
	Source     Source  `cbor:"6,keyasint,omitempty"`
}

// Source says how the ledger learned of an effect.
type Source uint8

// The sources of a receipt.
const (
	FromReport Source = iota // the attempt reported it
	FromLookup               // a look-up at the provider found it
	FromPerson               // a person attached it
	FromImport               // it was brought along from before
)

var sourceNames = [...]string{"report", "lookup", "person", "import"}

func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "invalid"
}

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

// Evidence is a report that came too late to be accepted. It is kept and shown, and never overwrites anything.
type Evidence struct {
	Token      Token   `cbor:"1,keyasint,omitzero"`
	Generation uint32  `cbor:"2,keyasint,omitempty"`
	Outcome    Outcome `cbor:"3,keyasint,omitempty"`
	ExternalID string  `cbor:"4,keyasint,omitempty"`
	Digest     Digest  `cbor:"5,keyasint,omitzero"`
	At         Time    `cbor:"6,keyasint,omitempty"`
	Error      string  `cbor:"7,keyasint,omitempty"`
}

// Probe is a look-up that is due: somebody must ask the provider and bring a verdict.
type Probe struct {
	Number    uint32  `cbor:"1,keyasint,omitempty"` // rises with every look and with every new looker
	NotBefore Time    `cbor:"2,keyasint,omitempty"` // until then an effect may not show yet
	Tries     int     `cbor:"3,keyasint,omitempty"` // look-ups of unknown result so far
	Session   Session `cbor:"4,keyasint,omitzero"`  // whose caller was sent to look; zero: nobody, or its session has ended
	Nonce     Nonce   `cbor:"5,keyasint,omitzero"`  // of the Open that was answered so; zero: nobody was sent yet
	Until     Time    `cbor:"6,keyasint,omitempty"` // until then nobody else is sent
}

// Mark is who asked for something, when and why.
type Mark struct {
	Who string `cbor:"1,keyasint,omitempty"`
	Why string `cbor:"2,keyasint,omitempty"`
	At  Time   `cbor:"3,keyasint,omitempty"`
}

// Settlement is what a person decided, kept so that a repeat of the decision gets the same answer.
type Settlement struct {
	Verb    Verb    `cbor:"1,keyasint,omitempty"`
	Version Version `cbor:"2,keyasint,omitzero"` // of the flight that the person had seen
	Mark    Mark    `cbor:"3,keyasint,omitzero"`
}

// Verb is what a person, or a look-up, says about an effect in doubt, or about an approval.
type Verb uint8

// The verbs of Resolve, and of Approve and Reject.
const (
	NoVerb Verb = iota
	Happened
	DidNotHappen
	Fail
	Approved
	Rejected
)

var verbNames = [...]string{"", "happened", "not_happened", "fail", "approved", "rejected"}

func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "invalid"
}

// Wake is what a flight in state Waiting waits for.
type Wake struct {
	At       Time `cbor:"1,keyasint,omitempty"` // a saga wakes then; a callback is overdue then; 0: nothing wakes it but a command
	Callback bool `cbor:"2,keyasint,omitempty"` // the attempt stays the newest one, and no session holds the key
}

// Phase is the one-way mark of a saga.
type Phase uint8

// The phases of a saga. NoPhase is every other flight's.
const (
	NoPhase Phase = iota
	Forward
	Undoing
)

// UsedNonce is a nonce that opens nothing any more. It is kept until no Open that carries it can be valid.
type UsedNonce struct {
	Nonce Nonce `cbor:"1,keyasint,omitzero"`
	Until Time  `cbor:"2,keyasint,omitempty"`
}

// Past is what stays of an earlier generation of a key.
type Past struct {
	Generation uint32   `cbor:"1,keyasint,omitempty"`
	State      State    `cbor:"2,keyasint,omitempty"`
	Receipt    *Receipt `cbor:"3,keyasint,omitempty"`
	EndedBy    Mark     `cbor:"4,keyasint,omitzero"`
}

// Flight is the durable record of one key. Values are immutable once the ledger handed them out: Apply copies.
//
// A tombstone is a Flight in state Expired that keeps only what still guards the key: ID, generation, fence,
// fingerprint, and the receipt's outcome and digest.
type Flight struct {
	ID           ID          `cbor:"1,keyasint"`
	Key          Key         `cbor:"2,keyasint,omitzero"` // zero in a tombstone
	Generation   uint32      `cbor:"3,keyasint,omitempty"`
	State        State       `cbor:"4,keyasint,omitempty"`
	Version      Version     `cbor:"5,keyasint,omitzero"`
	Fingerprint  Fingerprint `cbor:"6,keyasint,omitzero"`
	Input        Blob        `cbor:"7,keyasint,omitzero"`
	Policy       Policy      `cbor:"8,keyasint,omitzero"`
	Fence        Token       `cbor:"9,keyasint,omitzero"`   // the greatest store epoch and number of any attempt that the key has seen
	Attempts     []Attempt   `cbor:"10,keyasint,omitempty"` // of this generation, newest last, at most MaxAttempts
	AttemptCount uint32      `cbor:"11,keyasint,omitempty"` // of this generation, all of them
	Counted      uint32      `cbor:"12,keyasint,omitempty"` // attempts that the retry policy counts
	Doubts       uint32      `cbor:"13,keyasint,omitempty"` // attempts of unknown outcome that nobody has cleared
	FirstSend    Time        `cbor:"14,keyasint,omitempty"` // of the generation's first attempt: the provider window starts
	NotBefore    Time        `cbor:"15,keyasint,omitempty"` // of a scheduled flight
	Probe        *Probe      `cbor:"16,keyasint,omitempty"` // set exactly while the flight is looking
	Probes       uint32      `cbor:"17,keyasint,omitempty"` // number of the last probe
	Cancel       *Mark       `cbor:"18,keyasint,omitempty"` // somebody wants it cancelled
	Receipt      *Receipt    `cbor:"19,keyasint,omitempty"`
	CreatedAt    Time        `cbor:"20,keyasint,omitempty"`
	FinishedAt   Time        `cbor:"21,keyasint,omitempty"`
	Evidence     []Evidence  `cbor:"22,keyasint,omitempty"` // at most MaxEvidence
	EvidenceMore uint32      `cbor:"23,keyasint,omitempty"` // fenced reports beyond those kept
	Overlap      bool        `cbor:"24,keyasint,omitempty"` // evidence of a second effect was seen
	UsedNonces   []UsedNonce `cbor:"25,keyasint,omitempty"` // at most MaxUsedNonces, but for those of ended attempts
	Past         []Past      `cbor:"26,keyasint,omitempty"`
	Settled      *Settlement `cbor:"27,keyasint,omitempty"`
	Wake         *Wake       `cbor:"28,keyasint,omitempty"` // set exactly in state Waiting
	Phase        Phase       `cbor:"29,keyasint,omitempty"`
	Sealed       bool        `cbor:"30,keyasint,omitempty"`
	Cause        string      `cbor:"31,keyasint,omitempty"` // why it is in doubt, failed or cancelled
	InputFrom    uint32      `cbor:"32,keyasint,omitempty"` // the generation that brought the input, and beside which its bytes are kept
	Was          State       `cbor:"33,keyasint,omitempty"` // of a tombstone: how the flight had ended
	Redacted     *Mark       `cbor:"34,keyasint,omitempty"` // the bytes of its input and receipt were erased
	Duplicates   *Tally      `cbor:"35,keyasint,omitempty"` // of all generations; nil: none
}

// Tainted reports whether an effect of this generation may have happened without anybody knowing.
func (f *Flight) Tainted() bool { return f.Doubts > 0 }

// Newest is the newest attempt of this generation, nil when there is none. It must not be changed.
func (f *Flight) Newest() *Attempt {
	if f == nil || len(f.Attempts) == 0 {
		return nil
	}
	return &f.Attempts[len(f.Attempts)-1]
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
	if a := f.Newest(); a != nil && a.Open() {
		return a
	}
	return nil
}

// Holder is the session that holds the key: that of the open attempt, or of the caller that asks the provider; nil where no
// session does. An attempt that waits for its callback has no holder.
func (f *Flight) Holder() *Session {
	switch {
	case f == nil:
	case f.State == Running && f.OpenAttempt() != nil:
		return &f.Newest().Session
	case f.Probe != nil && f.Probe.Session != Session{}:
		return &f.Probe.Session
	}
	return nil
}

// Looking reports whether the flight waits for the verdict of a look-up.
func (f *Flight) Looking() bool { return f != nil && f.Probe != nil }

// Reopenable reports whether a person may let the flight run again: it ended without a receipt, and its input is there.
func (f *Flight) Reopenable() bool {
	return (f.State == StateFailed || f.State == StateCancelled) && f.Receipt == nil && !f.Sealed && f.Redacted == nil
}

// ExpiresAt is when the retention of a finished flight ends; 0 while it is not finished.
func (f *Flight) ExpiresAt() Time {
	if f.FinishedAt == 0 {
		return 0
	}
	return f.FinishedAt.Add(f.Policy.retention())
}

// DeletableAt is when the record of a key that was never opened may be deleted: it holds nothing but used nonces, and
// then the last of them has expired. 0: it holds more than that.
func (f *Flight) DeletableAt() Time {
	if f == nil || f.State != Absent || f.Generation != 1 || !f.Fence.IsZero() || f.Overlap ||
		len(f.Evidence)+len(f.Past) > 0 || f.EvidenceMore > 0 {
		return 0
	}
	var last Time
	for _, u := range f.UsedNonces {
		last = max(last, u.Until)
	}
	return last + 1
}

func (p Policy) retention() time.Duration {
	if p.Retention > 0 {
		return p.Retention
	}
	return DefaultRetention
}

// slowest is by how much the ledger's time may run slower than real time: by a twentieth of what has passed.
const slowest = 20

// windowEnd is the ledger time from which on the provider may have forgotten our key; ok is false where it never forgets it.
func (f *Flight) windowEnd() (end Time, ok bool) {
	w := f.Policy.ProviderWindow
	if w <= 0 || f.FirstSend == 0 {
		return 0, false
	}
	return f.FirstSend + Time((w - w/slowest).Milliseconds()), true
}

// ResendUntil is the ledger time until which the effect may be started once more under our key, so that its attempt is over
// before the provider may have forgotten the key; ok is false where there is no bound. It is compared with Header.Latest.
func (f *Flight) ResendUntil() (until Time, ok bool) {
	end, ok := f.windowEnd()
	return end - Time(0).Add(f.Policy.AttemptTimeout), ok
}

// ResendLeft is for how long the effect may still be started under an answer that is given now: the flight may have had an
// effect before, and only the provider's memory of our key keeps it at one. It is 0 when that is over, and ok is false where
// there is no bound.
func (f *Flight) ResendLeft(now Time) (left time.Duration, ok bool) {
	until, ok := f.ResendUntil()
	if !ok || !f.Tainted() || f.Policy.Recovery != Resend {
		return 0, false
	}
	return max(0, until.Until(now)), true
}

// WithinWindow reports whether the effect may be started once more at the given moment, as far as the provider's memory of our
// key goes.
func (f *Flight) WithinWindow(now Time) bool {
	until, ok := f.ResendUntil()
	return !ok || now < until
}

// honours reports whether an answer that had come by the given moment was given under our key.
func (f *Flight) honours(now Time) bool {
	end, ok := f.windowEnd()
	return !ok || now < end
}
