package flight

import "time"

// Command is one proposal to the ledger. Every command touches one key (or the header alone), names what it means to
// change, and may be repeated without harm (invariant I10).
type Command interface {
	// Target is the key that the command touches; the zero Key for commands about the header.
	Target() Key
	kind() kind
}

// Submission is what a caller wants done: it makes the flight of an absent key.
type Submission struct {
	Fingerprint Fingerprint `cbor:"1,keyasint,omitzero"`
	Input       Blob        `cbor:"2,keyasint,omitzero"`
	Policy      Policy      `cbor:"3,keyasint,omitzero"`
	Driver      Token       `cbor:"4,keyasint,omitzero"` // of a saga's step: the token of the driver that starts it
}

// Submit makes a flight without running it.
type Submit struct {
	Key        Key        `cbor:"1,keyasint"`
	Submission Submission `cbor:"2,keyasint"`
}

// Open asks for permission to start the effect: the point after which a crash leaves a doubt. It carries the
// submission, so that a new key costs one command. Key and Nonce identify it, whichever node and session it comes through.
type Open struct {
	Key        Key        `cbor:"1,keyasint"`
	Submission Submission `cbor:"2,keyasint"`
	Session    Session    `cbor:"3,keyasint"`           // becomes the attempt's holder
	Nonce      Nonce      `cbor:"4,keyasint"`           // one per open that is wanted; a repeat carries the same one
	NotAfter   Time       `cbor:"5,keyasint"`           // ledger time past which it opens nothing, at most MaxOpenLife ahead; as in every repeat
	Owner      string     `cbor:"6,keyasint,omitempty"` // for people
	StoreEpoch uint32     `cbor:"7,keyasint,omitempty"` // of the ledger that the proposer knew
}

// Report brings the outcome of an attempt, named by its token. It needs no session, and the flight may be one that this
// ledger has lost.
type Report struct {
	Key        Key           `cbor:"1,keyasint"`
	Generation uint32        `cbor:"2,keyasint"`
	Token      Token         `cbor:"3,keyasint"`
	Outcome    Outcome       `cbor:"4,keyasint"`
	ExternalID string        `cbor:"5,keyasint,omitempty"`
	Body       Blob          `cbor:"6,keyasint,omitzero"`
	Error      string        `cbor:"7,keyasint,omitempty"`
	RetryAfter time.Duration `cbor:"8,keyasint,omitempty"` // asked for by the provider
}

// Abandon is the word of the caller that made the nonce: nothing was sent, and nothing will ever be sent under it. It ends
// the attempt that the nonce has opened, or takes back the doubt that the loss of that attempt left behind. Where nothing
// was opened, the nonce opens nothing if its Open comes later.
type Abandon struct {
	Key        Key    `cbor:"1,keyasint"`
	Nonce      Nonce  `cbor:"2,keyasint"`
	NotAfter   Time   `cbor:"3,keyasint"` // of the Open
	StoreEpoch uint32 `cbor:"4,keyasint,omitempty"`
	Error      string `cbor:"5,keyasint,omitempty"`
}

// Ended is the proof that a session has ended: a read of etcd at ReadRevision found the guard key right and its counter at
// Counter, and did not find the session's marker. The state machine applies an admitted one to the flights that the session
// holds, at most MaxEnded of them, and remembers the session as ended for MaxOpenLife. Reply.More says that some flights are
// left.
type Ended struct {
	Session      Session `cbor:"1,keyasint"`
	ReadRevision int64   `cbor:"2,keyasint,omitempty"`
	Epoch        uint32  `cbor:"3,keyasint,omitempty"` // lease epoch of the guard key that was read
	StoreEpoch   uint32  `cbor:"4,keyasint,omitempty"`
	Counter      uint64  `cbor:"5,keyasint,omitempty"` // of the guard key that was read
}

// Withdraw says that a one-shot session will not be used for its key after all. Accepted: the state machine remembers the
// session as ended for MaxOpenLife, and nothing opens under it any more. Busy: the session holds the key, and nothing
// changes.
type Withdraw struct {
	Key        Key       `cbor:"1,keyasint"`
	Session    SessionID `cbor:"2,keyasint"`
	StoreEpoch uint32    `cbor:"3,keyasint,omitempty"`
}

// Verdict is what a look-up found out.
type Verdict struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Probe      uint32 `cbor:"3,keyasint"`
	Result     Verb   `cbor:"4,keyasint,omitempty"` // Happened or DidNotHappen; NoVerb: it could not find out
	ExternalID string `cbor:"5,keyasint,omitempty"`
	Body       Blob   `cbor:"6,keyasint,omitzero"`
}

// Suspend puts a saga to sleep, or hands an attempt over to a callback.
type Suspend struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Token      Token  `cbor:"3,keyasint"`
	Wake       Wake   `cbor:"4,keyasint"`
}

// WakeUp ends the sleep of a saga, or an open attempt whose time is over: its callback's, or its own deadline.
type WakeUp struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
}

// Cancel asks that the effect should not happen any more.
type Cancel struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Who        string `cbor:"3,keyasint,omitempty"`
	Why        string `cbor:"4,keyasint,omitempty"`
}

// Resolve settles a flight in doubt by the word of a person who looked at the version named.
type Resolve struct {
	Key        Key     `cbor:"1,keyasint"`
	Generation uint32  `cbor:"2,keyasint"`
	Version    Version `cbor:"3,keyasint"`
	Verb       Verb    `cbor:"4,keyasint"` // Happened, DidNotHappen or Fail
	ExternalID string  `cbor:"5,keyasint,omitempty"`
	Body       Blob    `cbor:"6,keyasint,omitzero"`
	Who        string  `cbor:"7,keyasint,omitempty"`
	Why        string  `cbor:"8,keyasint,omitempty"`
}

// Decide is a person's answer to a flight that awaits approval: Verb is Approved or Rejected. It is bound to what the
// person saw: generation, fingerprint and version.
type Decide struct {
	Key         Key         `cbor:"1,keyasint"`
	Generation  uint32      `cbor:"2,keyasint"`
	Fingerprint Fingerprint `cbor:"3,keyasint,omitzero"`
	Version     Version     `cbor:"4,keyasint"`
	Verb        Verb        `cbor:"5,keyasint"`
	Who         string      `cbor:"6,keyasint,omitempty"`
	Why         string      `cbor:"7,keyasint,omitempty"`
}

// Retry lets a flight that ended without a receipt run again, as a new generation with the same input and policy.
type Retry struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"` // the one that ended
	Who        string `cbor:"3,keyasint,omitempty"`
	Why        string `cbor:"4,keyasint,omitempty"`
}

// Free lets the effect of a key run again, for the next opener: the next generation is absent, the fence stays.
type Free struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"` // the one to end
	Who        string `cbor:"3,keyasint,omitempty"`
	Why        string `cbor:"4,keyasint,omitempty"`
}

// Seal makes sure that a key that was never opened never is: a step that a saga will not start.
type Seal struct {
	Key Key `cbor:"1,keyasint"`
}

// Turn flips a saga from forward to undoing, once and for ever: from then on no forward step opens.
type Turn struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Token      Token  `cbor:"3,keyasint"` // of the driver's attempt
}

// Expire turns a finished flight whose retention is over into a tombstone.
type Expire struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
}

// Redact erases the bytes of a finished flight's input and receipts, of all its generations. What happened stays known.
type Redact struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Who        string `cbor:"3,keyasint,omitempty"`
	Why        string `cbor:"4,keyasint,omitempty"`
}

// Import brings the receipt of an effect that happened before, so that the key is guarded from the first day on. It
// makes the flight of a key that was never used, and changes no other.
type Import struct {
	Key         Key           `cbor:"1,keyasint"`
	Fingerprint Fingerprint   `cbor:"2,keyasint,omitzero"`
	Input       Blob          `cbor:"3,keyasint,omitzero"`
	Outcome     Outcome       `cbor:"4,keyasint"` // Succeeded or Refused
	ExternalID  string        `cbor:"5,keyasint,omitempty"`
	Body        Blob          `cbor:"6,keyasint,omitzero"`
	CreatedAt   Time          `cbor:"7,keyasint,omitempty"` // 0: as FinishedAt
	FinishedAt  Time          `cbor:"8,keyasint,omitempty"` // the retention counts from here; 0, or later than now: now
	Retention   time.Duration `cbor:"9,keyasint,omitempty"` // 0: DefaultRetention
	Who         string        `cbor:"10,keyasint,omitempty"`
}

// Bootstrap names the deployment and gives it its secret, once; a repeat changes nothing.
type Bootstrap struct {
	Deployment string `cbor:"1,keyasint"`
	Secret     []byte `cbor:"2,keyasint"`
}

// RaiseEpoch accepts an etcd that has lost its past: sessions of the old epoch open nothing any more, and for the time of
// Hold no attempt of theirs is taken for lost, because its effect may still be on its way.
type RaiseEpoch struct {
	From uint32        `cbor:"1,keyasint"` // the epoch to leave
	Hold time.Duration `cbor:"2,keyasint"` // the longest TTL, time-out and settle delay together
	Who  string        `cbor:"3,keyasint,omitempty"`
	Why  string        `cbor:"4,keyasint,omitempty"`
}

// RecordGuard notes how far the counter of etcd's guard key was raised. A counter in etcd below the noted one proves that
// etcd has lost its past.
type RecordGuard struct {
	Epoch   uint32 `cbor:"1,keyasint"`
	Counter uint64 `cbor:"2,keyasint"`
}

// Tick carries nothing but the leader's time, so that a quiet ledger's clock goes on.
type Tick struct{}

// MaxEnded is how many flights one Ended ends at most.
const MaxEnded = 256

type kind uint8

// The numbers of the commands in version 1 of the codec. They are for ever.
const (
	kindSubmit     kind = 1
	kindOpen       kind = 2
	kindReport     kind = 3
	kindAbandon    kind = 4
	kindEnded      kind = 5
	kindVerdict    kind = 6
	kindSuspend    kind = 7
	kindWakeUp     kind = 8
	kindCancel     kind = 9
	kindResolve    kind = 10
	kindDecide     kind = 11
	kindRetry      kind = 12
	kindFree       kind = 13
	kindSeal       kind = 14
	kindTurn       kind = 15
	kindExpire     kind = 16
	kindBootstrap  kind = 17
	kindRaiseEpoch kind = 18
	kindTick       kind = 19
	kindRedact     kind = 20
	kindImport     kind = 21
	kindCount      kind = 22
	kindWithdraw   kind = 23
	kindGuard      kind = 24
)

func (c *Submit) Target() Key      { return c.Key }
func (c *Open) Target() Key        { return c.Key }
func (c *Report) Target() Key      { return c.Key }
func (c *Abandon) Target() Key     { return c.Key }
func (c *Ended) Target() Key       { return Key{} }
func (c *Withdraw) Target() Key    { return c.Key }
func (c *Verdict) Target() Key     { return c.Key }
func (c *Suspend) Target() Key     { return c.Key }
func (c *WakeUp) Target() Key      { return c.Key }
func (c *Cancel) Target() Key      { return c.Key }
func (c *Resolve) Target() Key     { return c.Key }
func (c *Decide) Target() Key      { return c.Key }
func (c *Retry) Target() Key       { return c.Key }
func (c *Free) Target() Key        { return c.Key }
func (c *Seal) Target() Key        { return c.Key }
func (c *Turn) Target() Key        { return c.Key }
func (c *Expire) Target() Key      { return c.Key }
func (c *Bootstrap) Target() Key   { return Key{} }
func (c *RaiseEpoch) Target() Key  { return Key{} }
func (c *Tick) Target() Key        { return Key{} }
func (c *RecordGuard) Target() Key { return Key{} }
func (c *Redact) Target() Key      { return c.Key }
func (c *Import) Target() Key      { return c.Key }
func (c *Count) Target() Key       { return c.Key }

func (c *Submit) kind() kind      { return kindSubmit }
func (c *Open) kind() kind        { return kindOpen }
func (c *Report) kind() kind      { return kindReport }
func (c *Abandon) kind() kind     { return kindAbandon }
func (c *Ended) kind() kind       { return kindEnded }
func (c *Withdraw) kind() kind    { return kindWithdraw }
func (c *Verdict) kind() kind     { return kindVerdict }
func (c *Suspend) kind() kind     { return kindSuspend }
func (c *WakeUp) kind() kind      { return kindWakeUp }
func (c *Cancel) kind() kind      { return kindCancel }
func (c *Resolve) kind() kind     { return kindResolve }
func (c *Decide) kind() kind      { return kindDecide }
func (c *Retry) kind() kind       { return kindRetry }
func (c *Free) kind() kind        { return kindFree }
func (c *Seal) kind() kind        { return kindSeal }
func (c *Turn) kind() kind        { return kindTurn }
func (c *Expire) kind() kind      { return kindExpire }
func (c *Bootstrap) kind() kind   { return kindBootstrap }
func (c *RaiseEpoch) kind() kind  { return kindRaiseEpoch }
func (c *Tick) kind() kind        { return kindTick }
func (c *RecordGuard) kind() kind { return kindGuard }
func (c *Redact) kind() kind      { return kindRedact }
func (c *Import) kind() kind      { return kindImport }
func (c *Count) kind() kind       { return kindCount }

// keyless reports whether commands of this kind name no key of their own.
func (k kind) keyless() bool {
	switch k {
	case kindBootstrap, kindRaiseEpoch, kindTick, kindEnded, kindGuard:
		return true
	}
	return false
}
