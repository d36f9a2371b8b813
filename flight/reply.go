package flight

import "time"

// Decision is what the ledger answers to a command: what is true now, and so what the asker may do.
type Decision uint8

// The decisions.
const (
	// NoDecision is the zero value; no command is answered so.
	NoDecision Decision = iota
	// Proceed: an attempt is open for the asker. The only answer that means act.
	Proceed
	// Look: ask the provider what happened and bring a Verdict for Reply.Probe.
	Look
	// Accepted: the command did what it says, now or when it came the first time.
	Accepted
	// Replay: the flight is over; its state and receipt are the answer.
	Replay
	// Busy: somebody else's attempt or look-up, or a sleeping saga, is in the way; or it is too early. See Reply.Wait. Or a
	// session that was to be withdrawn holds the key.
	Busy
	// Doubtful: the flight waits for a person.
	Doubtful
	// Unapproved: the flight waits for an approval.
	Unapproved
	// Conflict: the key belongs to another input.
	Conflict
	// Gone: the receipt's retention is over; a tombstone answers.
	Gone
	// Fenced: the token, the store epoch or the nonce is over, or the proof does not count. A report is kept as evidence.
	Fenced
	// Precluded: the flight is not in a state, or not at the version, in which this can be done.
	Precluded
	// Missing: the key was never used.
	Missing
	// OpenExpired: the Open came after its NotAfter, or its NotAfter is too far ahead. Its nonce has opened nothing and opens
	// nothing later. (Only where its NotAfter is more than MaxNonceLife ahead is that not remembered.)
	OpenExpired
	// SessionEnded: nothing opens under this session any more. The same nonce may be sent under another one.
	SessionEnded
	// Exhausted: the flight remembers as many used nonces as it may. It is worth asking again when they have expired.
	Exhausted
)

var decisionNames = [...]string{"none", "proceed", "look", "accepted", "replay", "busy", "doubtful", "unapproved",
	"conflict", "gone", "fenced", "precluded", "missing", "open_expired", "session_ended", "exhausted"}

func (d Decision) String() string {
	if int(d) < len(decisionNames) {
		return decisionNames[d]
	}
	return "invalid"
}

// Reply is the ledger's answer to one command.
type Reply struct {
	Decision Decision
	// Flight is the record after the command; nil when the key was never used. It must not be changed.
	Flight *Flight
	// Token is the fencing token of the attempt, with Proceed.
	Token Token
	// Probe is the number that a Verdict must bring, with Look.
	Probe uint32
	// Wait is how long it is not worth asking again, with Busy; 0 when only an event tells.
	Wait time.Duration
	// Changed says whether the flight is another than before; if so it is stored, and its waiters are woken.
	Changed bool
	// Deleted says that the flight held nothing any more: its record is deleted, and Flight is nil.
	Deleted bool
	// Each has the replies for the flights that an Ended changed, in the order of their ids.
	Each []Reply
	// More says, of an Ended that was accepted, that flights of its session are left: propose it again.
	More bool
	// Events tell what happened, in order. They become the flight's history.
	Events []Event
}

// Event is one line in the history of a flight.
type Event struct {
	Kind       EventKind `cbor:"1,keyasint"`
	Generation uint32    `cbor:"2,keyasint,omitempty"`
	Attempt    uint32    `cbor:"3,keyasint,omitempty"` // the attempt it is about, 0 when it is about none
	At         Time      `cbor:"4,keyasint,omitempty"`
	Outcome    Outcome   `cbor:"5,keyasint,omitempty"`
	Who        string    `cbor:"6,keyasint,omitempty"`
	Note       string    `cbor:"7,keyasint,omitempty"` // an error, a reason, an external id
}

// EventKind names what happened.
type EventKind uint8

// The kinds of events.
const (
	EventSubmitted EventKind = iota + 1
	EventOpened
	EventReported
	EventAbandoned
	EventLost // the open attempt's session has ended, or its time is over
	EventFencedReport
	EventOverlap // evidence of a second effect
	EventLooking
	EventVerdict
	EventInDoubt
	EventResolved
	EventScheduled // it will be tried again
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
	EventTurned
	EventExpired
	EventDuplicates // calls were answered without another effect; no history has it, see Tally
	EventRedacted
	EventImported
)

var eventNames = [...]string{"", "submitted", "opened", "reported", "abandoned", "lost", "report_fenced", "overlap", "looking",
	"verdict", "in_doubt", "resolved", "scheduled", "cancel_requested", "cancelled", "failed", "approved", "rejected",
	"retried", "freed", "sealed", "suspended", "woken", "turned", "expired", "duplicates", "redacted", "imported"}

func (k EventKind) String() string {
	if int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "invalid"
}
