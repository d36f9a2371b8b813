package flight

import "time"

// Command is one proposal to the ledger. Every command changes one key, or the header alone, names the state that it is based
// on, and may be repeated without harm (invariant I10).
type Command interface {
	// Target is the key that the command changes; the zero Key for commands about the header.
	Target() Key
	kind() kind
}

// Submission describes the intent of a caller. It creates the flight of an absent key.
type Submission struct {
	Fingerprint Fingerprint `cbor:"1,keyasint,omitzero"`
	Input       Blob        `cbor:"2,keyasint,omitzero"`
	Policy      Policy      `cbor:"3,keyasint,omitzero"`
	Driver      Token       `cbor:"4,keyasint,omitzero"`  // of a saga's step: the token of the driver that starts it
	Requester   string      `cbor:"5,keyasint,omitempty"` // of an approval, a saga or a person's job: who asks for it, for the person who decides
	Reason      string      `cbor:"6,keyasint,omitempty"` // why a person has submitted it; "": a program has
}

// Submit creates a flight without running it. With a Queue it is a job, which the workers of its action claim.
type Submit struct {
	Key        Key        `cbor:"1,keyasint"`
	Submission Submission `cbor:"2,keyasint"`
	Queue      *Queue     `cbor:"3,keyasint,omitempty"`
}

// Open requests permission to start the effect. Once it is committed, a crash of the caller taints the flight. It carries the
// submission, so that a new key needs only one command. Key and Nonce identify it, through any node and under any session.
type Open struct {
	Key        Key        `cbor:"1,keyasint"`
	Submission Submission `cbor:"2,keyasint"`
	Session    Session    `cbor:"3,keyasint"`           // becomes the attempt's holder
	Nonce      Nonce      `cbor:"4,keyasint"`           // one for each Open; a repeat carries the same one
	NotAfter   Time       `cbor:"5,keyasint"`           // ledger time after which it opens nothing, at most MaxOpenLife ahead; same in repeats
	Owner      string     `cbor:"6,keyasint,omitempty"` // for people
	StoreEpoch uint32     `cbor:"7,keyasint,omitempty"` // of the ledger that the proposer knew
	Trace      Trace      `cbor:"8,keyasint,omitzero"`  // that the attempt belongs to
}

// Report carries the outcome of an attempt, identified by its token. It needs no session. A restored ledger may have lost the
// flight.
type Report struct {
	Key        Key           `cbor:"1,keyasint"`
	Generation uint32        `cbor:"2,keyasint"`
	Token      Token         `cbor:"3,keyasint"`
	Outcome    Outcome       `cbor:"4,keyasint"`
	ExternalID string        `cbor:"5,keyasint,omitempty"`
	Body       Blob          `cbor:"6,keyasint,omitzero"`
	Error      string        `cbor:"7,keyasint,omitempty"`
	RetryAfter time.Duration `cbor:"8,keyasint,omitempty"` // the provider's Retry-After
}

// IsBehind reports whether the report has no final outcome and a newer attempt was opened: then f does not show the outcome, and its caller is
// told that it is fenced, also if the ledger has accepted the report.
func (c *Report) IsBehind(f *Flight) bool {
	newest := f.Newest()
	return !c.Outcome.Final() && newest != nil && c.Token.Number < newest.Number
}

// Abandon is the statement of the nonce's caller that nothing was sent, and nothing will ever be sent, under the nonce. It
// ends the attempt that the nonce has opened, or removes the taint if that attempt was marked lost. If nothing was opened,
// it uses up the nonce, so that a delayed Open opens nothing.
type Abandon struct {
	Key        Key    `cbor:"1,keyasint"`
	Nonce      Nonce  `cbor:"2,keyasint"`
	NotAfter   Time   `cbor:"3,keyasint"` // of the Open
	StoreEpoch uint32 `cbor:"4,keyasint,omitempty"`
	Error      string `cbor:"5,keyasint,omitempty"`
}

// EndSession carries the proof that a session has ended: a read of etcd at ReadRevision found the expected guard key, with
// its counter at Counter, and no session key. The state machine applies an admitted proof to the flights that the session
// holds, at most MaxEndSessionFlights of them, and remembers the session as ended for MaxOpenLife. Reply.More is set if
// flights are left.
type EndSession struct {
	Session      Session `cbor:"1,keyasint"`
	ReadRevision int64   `cbor:"2,keyasint,omitempty"`
	Epoch        uint32  `cbor:"3,keyasint,omitempty"` // lease epoch of the guard key that was read
	StoreEpoch   uint32  `cbor:"4,keyasint,omitempty"`
	Counter      uint64  `cbor:"5,keyasint,omitempty"` // of the guard key that was read
}

// WithdrawSession gives up a one-shot session that was created for the key. With DecisionAccepted, the state machine
// remembers the session as ended for MaxOpenLife, and nothing opens under it any more. With DecisionBusy, the session holds
// the key, and nothing changes.
type WithdrawSession struct {
	Key        Key       `cbor:"1,keyasint"`
	Session    SessionID `cbor:"2,keyasint"`
	StoreEpoch uint32    `cbor:"3,keyasint,omitempty"`
}

// CloseSession gives up a session at the request of its owner. With DecisionAccepted, the session holds no flight at all; the
// state machine remembers it as ended for MaxOpenLife, and nothing opens under it any more: then its etcd lease may be revoked.
// With DecisionBusy, it holds a flight, and nothing changes.
type CloseSession struct {
	Session    SessionID `cbor:"1,keyasint"`
	StoreEpoch uint32    `cbor:"2,keyasint,omitempty"`
}

// ReportFinding carries the result of a look-up.
type ReportFinding struct {
	Key          Key     `cbor:"1,keyasint"`
	Generation   uint32  `cbor:"2,keyasint"`
	Verification uint32  `cbor:"3,keyasint"`
	Finding      Finding `cbor:"4,keyasint,omitempty"` // FindingHappened or FindingNotHappened; FindingNone: inconclusive
	ExternalID   string  `cbor:"5,keyasint,omitempty"`
	Body         Blob    `cbor:"6,keyasint,omitzero"`
}

// Suspend puts a saga to sleep, or lets an attempt wait for its callback.
type Suspend struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Token      Token  `cbor:"3,keyasint"`
	Wake       Wake   `cbor:"4,keyasint"`
}

// WakeUp ends the sleep of a saga, an open attempt whose time is over (its callback's, or its own deadline), or an approval that
// did not come in time.
type WakeUp struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
}

// Cancel requests that the effect does not happen.
type Cancel struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Actor      string `cbor:"3,keyasint,omitempty"`
	Reason     string `cbor:"4,keyasint,omitempty"`
	Driver     Token  `cbor:"5,keyasint,omitzero"` // of a step: the token of its saga's driver
}

// Resolve is a person's decision about a flight in doubt, based on the given version.
type Resolve struct {
	Key        Key     `cbor:"1,keyasint"`
	Generation uint32  `cbor:"2,keyasint"`
	Version    Version `cbor:"3,keyasint"`
	Finding    Finding `cbor:"4,keyasint"` // FindingHappened, FindingNotHappened or FindingFail
	ExternalID string  `cbor:"5,keyasint,omitempty"`
	Body       Blob    `cbor:"6,keyasint,omitzero"`
	Actor      string  `cbor:"7,keyasint,omitempty"`
	Reason     string  `cbor:"8,keyasint,omitempty"`
}

// DecideApproval is a person's answer to a flight that awaits approval: FindingApproved or FindingRejected. It is based on
// the given generation, fingerprint and version, and rejected for any other.
type DecideApproval struct {
	Key         Key         `cbor:"1,keyasint"`
	Generation  uint32      `cbor:"2,keyasint"`
	Fingerprint Fingerprint `cbor:"3,keyasint,omitzero"`
	Version     Version     `cbor:"4,keyasint"`
	Finding     Finding     `cbor:"5,keyasint"`
	Actor       string      `cbor:"6,keyasint,omitempty"`
	Reason      string      `cbor:"7,keyasint,omitempty"`
}

// Retry lets a flight that ended without a receipt run again, as a new generation with the same input and policy.
type Retry struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"` // the generation that ended
	Actor      string `cbor:"3,keyasint,omitempty"`
	Reason     string `cbor:"4,keyasint,omitempty"`
}

// FreeKey lets the effect of a key run again for the next Open. It starts a generation in StateAbsent and keeps the fence.
type FreeKey struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"` // the generation to end
	Actor      string `cbor:"3,keyasint,omitempty"`
	Reason     string `cbor:"4,keyasint,omitempty"`
}

// SealKey permanently closes a key that was never opened: a step that its saga will not start.
type SealKey struct {
	Key    Key   `cbor:"1,keyasint"`
	Driver Token `cbor:"2,keyasint,omitzero"` // of the saga's driver
}

// PassPivot changes a saga from forward to committed, because its pivot has succeeded. The change is permanent: no undo opens afterwards,
// and a cancel is rejected.
type PassPivot struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Token      Token  `cbor:"3,keyasint"` // of the driver's attempt
}

// BeginUndo changes a cancelled saga from forward to undoing. The change is permanent: no forward step opens afterwards.
type BeginUndo struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Token      Token  `cbor:"3,keyasint"` // of the driver's attempt
}

// Expire replaces a finished flight whose retention has expired by a tombstone.
type Expire struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
}

// Redact erases the bytes of a finished flight's input and receipts, in all its generations. Outcomes and digests are kept.
type Redact struct {
	Key        Key    `cbor:"1,keyasint"`
	Generation uint32 `cbor:"2,keyasint"`
	Actor      string `cbor:"3,keyasint,omitempty"`
	Reason     string `cbor:"4,keyasint,omitempty"`
}

// Import stores the receipt of an effect that happened before or outside flightd, so that its key is guarded. It creates the
// flight of a key that was never used, and changes no other flight.
type Import struct {
	Key         Key           `cbor:"1,keyasint"`
	Fingerprint Fingerprint   `cbor:"2,keyasint,omitzero"`
	Input       Blob          `cbor:"3,keyasint,omitzero"`
	Outcome     Outcome       `cbor:"4,keyasint"` // OutcomeSucceeded or OutcomeRefused
	ExternalID  string        `cbor:"5,keyasint,omitempty"`
	Body        Blob          `cbor:"6,keyasint,omitzero"`
	CreatedAt   Time          `cbor:"7,keyasint,omitempty"` // 0: FinishedAt
	FinishedAt  Time          `cbor:"8,keyasint,omitempty"` // start of the retention; 0, or later than now: now
	Retention   time.Duration `cbor:"9,keyasint,omitempty"` // 0: DefaultRetention
	Actor       string        `cbor:"10,keyasint,omitempty"`
}

// Bootstrap sets the deployment's name and secret once; a repeat changes nothing.
type Bootstrap struct {
	Deployment string `cbor:"1,keyasint"`
	Secret     []byte `cbor:"2,keyasint,omitempty"`
}

// RaiseEpoch accepts an etcd that has lost data. Sessions of the old epoch open nothing any more. No attempt of the old
// epoch is marked lost before Hold has passed, because its effect may still be in progress.
type RaiseEpoch struct {
	From   uint32        `cbor:"1,keyasint"` // the epoch to leave
	Hold   time.Duration `cbor:"2,keyasint"` // the longest TTL, time-out and settle delay together
	Actor  string        `cbor:"3,keyasint,omitempty"`
	Reason string        `cbor:"4,keyasint,omitempty"`
}

// RecordGuard stores the counter of etcd's guard key. A counter in etcd below the stored one proves that etcd has lost data.
type RecordGuard struct {
	Epoch   uint32 `cbor:"1,keyasint"`
	Counter uint64 `cbor:"2,keyasint"`
}

// Tick carries nothing but the leader's time, so that the clock of an idle ledger advances. With StepTo it is a step of the
// clock: the ledger's time becomes StepTo, unless it is later already.
type Tick struct {
	StepTo Time `cbor:"1,keyasint,omitempty"`
}

// MaxEndSessionFlights is the maximum number of flights that one EndSession changes.
const MaxEndSessionFlights = 256

type kind uint8

// The numbers of the commands in version 1 of the codec, each with the name of its type, for codergen. From the first release on they never
// change: logs and snapshots contain them.
const (
	kindSubmit          kind = 1
	kindOpen            kind = 2
	kindReport          kind = 3
	kindAbandon         kind = 4
	kindEndSession      kind = 5
	kindReportFinding   kind = 6
	kindSuspend         kind = 7
	kindWakeUp          kind = 8
	kindCancel          kind = 9
	kindResolve         kind = 10
	kindDecideApproval  kind = 11
	kindRetry           kind = 12
	kindFreeKey         kind = 13
	kindSealKey         kind = 14
	kindBeginUndo       kind = 15
	kindExpire          kind = 16
	kindBootstrap       kind = 17
	kindRaiseEpoch      kind = 18
	kindTick            kind = 19
	kindRedact          kind = 20
	kindImport          kind = 21
	kindCountDuplicates kind = 22
	kindWithdrawSession kind = 23
	kindRecordGuard     kind = 24
	kindRaiseLevel      kind = 25
	kindPutDocument     kind = 26
	kindDeleteDocument  kind = 27
	kindCloseSession    kind = 28
	kindRestore         kind = 29
	kindFinishRestore   kind = 30
	kindPassPivot       kind = 31
)
