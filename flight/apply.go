package flight

import (
	"slices"
	"strings"
	"time"
)

// Bounds of an Open's validity.
const (
	// MaxOpenLife is the maximum time by which the NotAfter of an effective Open may be ahead of the ledger's time. A used
	// nonce and an ended session are remembered for that long: then every Open that names them has expired.
	MaxOpenLife = time.Minute
	// MaxNonceLife is the maximum time for which a nonce with a NotAfter further ahead than MaxOpenLife is remembered. Its
	// Open opens nothing; a copy that arrives when the NotAfter is no longer too far ahead opens nothing either.
	MaxNonceLife = time.Hour
)

// Apply applies one command to a view; it contains all the rules. It is pure: it reads no clock and draws no random number,
// so that the same view and command give the same answer on every node, in every replay of the log. Flights in v are not
// changed.
//
// The returned view has the header and the flight after the command. The flight must be stored if Reply.Changed is set. The
// flight's version becomes that of the command, except where only a used nonce or a count of duplicates was added: a person
// who decides on a version must not be rejected for such a change. The invariants of the package comment hold for every
// view that Apply returns, if they held before.
func Apply(v View, c Command) (View, Reply) {
	t := &turn{header: v.Header, before: v.Flight, saga: v.Saga, ended: v.Ended, key: c.Target()}
	d := t.apply(c)
	if t.after != nil {
		if !t.quiet {
			t.after.Version = v.Header.Version
		}
		v.Flight = t.after
	}
	if t.gone {
		v.Flight = nil
	}
	v.Header = t.header
	reply := Reply{Decision: d, Flight: v.Flight, Changed: t.after != nil || t.gone, Deleted: t.gone, Events: t.events, Wait: t.wait}
	switch d {
	case Proceed:
		reply.Token = v.Header.TokenOf(v.Flight.Newest())
	case Look:
		reply.Probe = v.Flight.Probe.Number
	}
	return v, reply
}

// transition is one application of one command.
type turn struct {
	header Header
	key    Key
	before *Flight // the flight before the command; never changed
	after  *Flight // the flight after the command; nil until something changes
	saga   *Flight
	ended  bool // the session of the Open is remembered as ended
	events []Event
	wait   time.Duration
	quiet  bool // the change does not give the flight a new version
	gone   bool // the flight's record is empty and is deleted
}

func (t *turn) apply(c Command) Decision {
	switch c := c.(type) {
	case *Submit:
		return t.submit(c)
	case *Open:
		return t.open(c)
	case *Report:
		return t.report(c)
	case *Abandon:
		return t.abandon(c)
	case *Ended:
		return t.sessionEnded(c)
	case *Withdraw:
		return t.withdraw(c)
	case *Verdict:
		return t.verdict(c)
	case *Suspend:
		return t.suspend(c)
	case *WakeUp:
		return t.wakeUp(c)
	case *Cancel:
		return t.cancel(c)
	case *Resolve:
		return t.resolve(c)
	case *Decide:
		return t.decide(c)
	case *Retry:
		return t.retry(c)
	case *Free:
		return t.free(c)
	case *Seal:
		return t.seal(c)
	case *Turn:
		return t.turn(c)
	case *Expire:
		return t.expire(c)
	case *Redact:
		return t.redact(c)
	case *Import:
		return t.bring(c)
	case *Bootstrap:
		return t.bootstrap(c)
	case *RaiseEpoch:
		return t.raiseEpoch(c)
	case *RecordGuard:
		return t.recordGuard(c)
	case *Tick:
		return Accepted
	case *Count:
		return t.count(c)
	}
	return Precluded
}

// flight is the record with the changes so far; nil when the key was never used.
func (t *turn) flight() *Flight {
	if t.after != nil {
		return t.after
	}
	return t.before
}

// editFlight returns the record to be changed. Its attempts are a copy; all other pointers and slices are shared with the
// record before the command, and must be replaced, never modified.
func (t *turn) edit() *Flight {
	switch {
	case t.after != nil:
	case t.before == nil:
		t.after = &Flight{ID: t.key.FlightID(), Key: t.key, Generation: 1}
	default:
		copied := *t.before
		copied.Attempts = slices.Clone(copied.Attempts)
		t.after = &copied
	}
	return t.after
}

// latestTime is the time of the command by the clock that is furthest ahead.
func (t *turn) latest() Time { return t.header.Latest(t.header.Now) }

// newestAttempt returns the newest attempt, to be changed. The flight must have an attempt.
func (t *turn) newest() *Attempt {
	f := t.edit()
	return &f.Attempts[len(f.Attempts)-1]
}

func (t *turn) note(k EventKind, e Event) {
	e.Kind, e.At = k, t.header.Now
	if e.Generation == 0 {
		e.Generation = t.flight().Generation
	}
	t.events = append(t.events, e)
}

// absent reports whether the key was never used or was freed.
func (t *turn) absent() bool { return t.flight() == nil || t.flight().State == Absent }

// answerBusy returns DecisionBusy: the command is too early, or another holder has the key, until the given time; 0 when only
// an event ends the wait.
func (t *turn) busy(until Time) Decision {
	if until > 0 {
		t.wait = max(0, until.Until(t.header.Now))
	}
	return Busy
}

// answerFinal answers a submission to a flight that is over, or with another input: conflict before expired before replay. It
// returns DecisionNone for every other flight.
func (t *turn) settled(fp Fingerprint) Decision {
	switch f := t.flight(); {
	case t.absent():
		return NoDecision
	case !f.Fingerprint.Matches(fp):
		return Conflict
	case f.State == Expired:
		return Gone
	case f.State.Terminal():
		return Replay
	}
	return NoDecision
}

// answerCurrent answers a command that changes nothing with the present state of the flight.
func (t *turn) standing() Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case f.State == Expired:
		return Gone
	case f.State.Terminal():
		return Replay
	case f.State == InDoubt:
		return Doubtful
	case f.State == AwaitingApproval:
		return Unapproved
	}
	return Accepted
}

// createFlight creates the flight of an absent key from its first submission.
func (t *turn) create(s *Submission) {
	f := t.edit()
	f.Key = t.key
	f.Fingerprint, f.Input, f.Policy = s.Fingerprint, s.Input, s.Policy
	f.InputFrom = f.Generation
	f.CreatedAt = t.header.Now
	if s.Policy.RunAfter > 0 {
		f.NotBefore = t.header.Now.Add(s.Policy.RunAfter)
	}
	if s.Policy.Saga {
		f.Phase = Forward
	}
	t.note(EventSubmitted, Event{})
	if s.Policy.Approval {
		f.State = AwaitingApproval
		return
	}
	t.enqueue()
}

// makeReady makes the flight ready, or scheduled where its NotBefore has not passed.
func (t *turn) enqueue() {
	f := t.edit()
	f.State = Queued
	if f.NotBefore > t.header.Now {
		f.State = Scheduled
		return
	}
	f.NotBefore = 0
}

// closeAttempt ends the open attempt with an outcome.
func (t *turn) close(o Outcome) {
	a := t.newest()
	a.ClosedAt, a.Outcome = t.header.Now, o
	t.edit().Wake = nil
}

// taint marks the flight as tainted by its newest attempt.
func (t *turn) doubt() {
	if a := t.newest(); !a.Doubt {
		a.Doubt = true
		t.edit().Doubts++
	}
}

// untaintNewest removes the taint of the newest attempt alone.
func (t *turn) undoubt() {
	if a := t.newest(); a.Doubt {
		a.Doubt = false
		t.edit().Doubts--
	}
}

// untaintAll removes the taint of every attempt: the outcome of the flight is known.
func (t *turn) clear() {
	f := t.edit()
	f.Doubts = 0
	for i := range f.Attempts {
		f.Attempts[i].Doubt = false
	}
}

// endWithReceipt ends the flight with its receipt. From this command on the receipt never changes (invariant I4).
func (t *turn) land(r Receipt) {
	f := t.edit()
	r.At, r.ExternalID = t.header.Now, Text(r.ExternalID)
	f.Receipt = &r
	f.State = StateSucceeded
	if r.Outcome == Refused {
		f.State = StateFailed
	}
	t.end("")
	t.compareAll()
}

// endWithoutReceipt ends the flight without a receipt, as failed or cancelled.
func (t *turn) finish(s State, cause string) {
	f := t.edit()
	f.State = s
	t.end(cause)
	kind := EventFailed
	if s == StateCancelled {
		kind = EventCancelled
	}
	e := Event{Note: cause}
	if f.Cancel != nil {
		e.Who = f.Cancel.Who
	}
	t.note(kind, e)
	t.compareAll()
}

// clearLive clears the fields that only a flight in progress has.
func (t *turn) end(cause string) {
	t.clear()
	f := t.edit()
	f.Probe, f.Wake, f.NotBefore, f.Cause, f.FinishedAt = nil, nil, 0, Text(cause), t.header.Now
}

// nextGeneration ends the present generation and starts an empty one. The fence is kept, and attempt numbers continue.
func (t *turn) nextGeneration(by Mark) *Flight {
	old := t.edit()
	next := &Flight{ID: old.ID, Key: t.key, Generation: old.Generation + 1, Fence: old.Fence, Overlap: old.Overlap,
		Evidence: old.Evidence, EvidenceMore: old.EvidenceMore, Probes: old.Probes, Duplicates: old.Duplicates}
	state := old.State
	if state == Expired {
		state = old.Was
	}
	next.Past = append(slices.Clip(old.Past), Past{Generation: old.Generation, State: state, Receipt: old.Receipt, EndedBy: by})
	next.UsedNonces = t.usedNoncesOf(old)
	t.after = next
	return next
}

// Sanitize returns a text from outside in the form in which the ledger stores it: truncated to MaxText bytes, and without
// invalid UTF-8.
func Text(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText]
	}
	return strings.ToValidUTF8(s, "")
}
