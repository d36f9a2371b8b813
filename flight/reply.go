package flight

import "time"

// Decision is the ledger's answer to a command. It describes the present state, and decides whether the caller may act.
type Decision uint8

// The decisions.
const (
	// DecisionNone is the zero value; no command is answered with it.
	DecisionNone Decision = iota
	// DecisionProceed: an attempt is open for the caller. No other decision permits the effect.
	DecisionProceed
	// DecisionVerify: the caller must ask the provider for the outcome, and propose ReportFinding for Reply.Verification.
	DecisionVerify
	// DecisionAccepted: the command was applied, now or at its first delivery.
	DecisionAccepted
	// DecisionReplay: the flight is over; its state and receipt are the answer.
	DecisionReplay
	// DecisionBusy: another caller's attempt or look-up, or a sleeping saga, holds the key; or the command is too early. See
	// Reply.Wait. For WithdrawSession: the session holds the key.
	DecisionBusy
	// DecisionInDoubt: the flight waits for a person.
	DecisionInDoubt
	// DecisionAwaitingApproval: the flight waits for an approval.
	DecisionAwaitingApproval
	// DecisionConflict: the key was used with another input.
	DecisionConflict
	// DecisionExpired: the receipt's retention has expired; a tombstone guards the key.
	DecisionExpired
	// DecisionFenced: the token, the store epoch or the nonce is no longer valid, or the proof is not accepted. A report is
	// stored as evidence.
	DecisionFenced
	// DecisionFailedPrecondition: the flight's state or version does not permit the command.
	DecisionFailedPrecondition
	// DecisionNotFound: the key was never used.
	DecisionNotFound
	// DecisionOpenExpired: the Open arrived after its NotAfter, or its NotAfter is too far ahead. Its nonce has opened
	// nothing and will open nothing. (A nonce whose NotAfter is more than MaxNonceLife ahead is not remembered.)
	DecisionOpenExpired
	// DecisionSessionEnded: nothing opens under this session any more. The same nonce may be sent under another session.
	DecisionSessionEnded
	// DecisionExhausted: the flight remembers MaxUsedNonces used nonces. Retry after they have expired.
	DecisionExhausted
	// DecisionReconciling: the ledger was restored, and nothing opens before an operator has finished the restore. The nonce
	// has opened nothing and is not used up.
	DecisionReconciling
)

var decisionNames = [...]string{"none", "proceed", "verify", "accepted", "replay", "busy", "in_doubt", "awaiting_approval",
	"conflict", "expired", "fenced", "failed_precondition", "not_found", "open_expired", "session_ended", "exhausted", "reconciling"}

func (d Decision) String() string { return wordOf(decisionNames[:], d) }

// Reply is the ledger's answer to one command.
type Reply struct {
	Decision Decision
	// Flight is the record after the command; nil when the key was never used. It must not be changed.
	Flight *Flight
	// Token is the fencing token of the attempt, with DecisionProceed.
	Token Token
	// Verification is the number that ReportFinding must carry, with DecisionVerify.
	Verification uint32
	// Wait is the time before which a retry cannot succeed, with DecisionBusy; 0 when only an event ends the wait.
	Wait time.Duration
	// Changed reports whether the command changed the flight. A changed flight is stored, and its waiters are woken.
	Changed bool
	// Deleted reports that the flight's record is empty: it is deleted, and Flight is nil.
	Deleted bool
	// PerFlight has the replies for the flights that an EndSession changed, in the order of their ids.
	PerFlight []Reply
	// More reports that an accepted EndSession left flights of its session: propose it again.
	More bool
	// Events are the flight's new history entries, in order.
	Events []Event
	// Document is the document after a command about one; nil: it does not exist. It must not be changed.
	Document *Document
}

// Event is one line in the history of a flight.
type Event struct {
	Kind       EventKind `cbor:"1,keyasint"`
	Generation uint32    `cbor:"2,keyasint,omitempty"`
	Attempt    uint32    `cbor:"3,keyasint,omitempty"` // the attempt it is about, 0 when it is about none
	At         Time      `cbor:"4,keyasint,omitempty"`
	Outcome    Outcome   `cbor:"5,keyasint,omitempty"`
	Actor      string    `cbor:"6,keyasint,omitempty"`
	Note       string    `cbor:"7,keyasint,omitempty"` // an error, a reason, an external id
}

// EventKind is the type of an Event.
type EventKind uint8

// The kinds of events.
const (
	EventSubmitted EventKind = iota + 1
	EventOpened
	EventReported
	EventAbandoned
	EventLost // the open attempt's session has ended, or its time is over
	EventReportFenced
	EventOverlap // evidence of a second effect
	EventVerifying
	EventVerificationReported
	EventInDoubt
	EventResolved
	EventScheduled // a retry is scheduled
	EventCancelRequested
	EventCancelled
	EventFailed // without a receipt
	EventApproved
	EventRejected
	EventRetried
	EventFreed
	EventSealed
	EventSuspended
	EventWoken
	EventUndoBegun
	EventExpired
	EventDuplicates // calls were answered without another effect; no stored history has it, see DuplicateStats
	EventRedacted
	EventImported
	EventDocumentPut // this and the following kinds are about a document, and stored in no history
	EventDocumentDeleted
	EventPivotPassed // of a saga
)

var eventNames = [...]string{"", "submitted", "opened", "reported", "abandoned", "lost", "report_fenced", "overlap", "verifying",
	"verification_reported", "in_doubt", "resolved", "scheduled", "cancel_requested", "cancelled", "failed", "approved", "rejected",
	"retried", "freed", "sealed", "suspended", "woken", "undo_begun", "expired", "duplicates", "redacted", "imported",
	"document_put", "document_deleted", "pivot_passed"}

func (k EventKind) String() string { return wordOf(eventNames[:], k) }
