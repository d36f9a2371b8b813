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
	t := &transition{header: v.Header, before: v.Flight, saga: v.Saga, sessionHasEnded: v.SessionEnded, laneBlocked: v.LaneBlocked, noDefinition: v.NoDefinition, key: c.Target()}
	if t.key.IsZero() && v.Flight != nil {
		t.key = v.Flight.Key // EndSession names no key
	}
	d := t.apply(c)
	if t.after != nil {
		if !t.keepsVersion {
			t.after.Version = v.Header.Version
		}
		v.Flight = t.after
	}
	if t.deleted {
		v.Flight = nil
	}
	v.Header = t.header
	reply := Reply{Decision: d, Flight: v.Flight, Changed: t.after != nil || t.deleted, Deleted: t.deleted, Events: t.events, Wait: t.wait}
	switch d {
	case DecisionProceed:
		reply.Token = v.Header.TokenOf(v.Flight.Newest())
	case DecisionVerify:
		reply.Verification = v.Flight.Verification.Number
	}
	return v, reply
}

// transition is one application of one command.
type transition struct {
	header          Header
	key             Key
	before          *Flight // the flight before the command; never changed
	after           *Flight // the flight after the command; nil until something changes
	saga            *Flight
	sessionHasEnded bool // the session of the Open is remembered as ended
	laneBlocked     bool // others stand before the flight in its lane
	noDefinition    bool // the definition of the saga is not stored
	events          []Event
	wait            time.Duration
	keepsVersion    bool // the change does not give the flight a new version
	deleted         bool // the flight's record is empty and is deleted
}

func (t *transition) apply(c Command) Decision {
	switch c := c.(type) {
	case *Submit:
		return t.submit(c)
	case *Open:
		return t.open(c)
	case *Report:
		return t.report(c)
	case *Abandon:
		return t.abandon(c)
	case *EndSession:
		return t.endSession(c)
	case *WithdrawSession:
		return t.withdrawSession(c)
	case *ReportFinding:
		return t.reportFinding(c)
	case *Suspend:
		return t.suspend(c)
	case *WakeUp:
		return t.wakeUp(c)
	case *Cancel:
		return t.cancel(c)
	case *Resolve:
		return t.resolve(c)
	case *DecideApproval:
		return t.decideApproval(c)
	case *Retry:
		return t.retry(c)
	case *FreeKey:
		return t.freeKey(c)
	case *SealKey:
		return t.sealKey(c)
	case *BeginUndo:
		return t.beginUndo(c)
	case *PassPivot:
		return t.passPivot(c)
	case *Expire:
		return t.expire(c)
	case *Redact:
		return t.redact(c)
	case *Import:
		return t.importReceipt(c)
	case *Bootstrap:
		return t.bootstrap(c)
	case *RaiseEpoch:
		return t.raiseEpoch(c)
	case *RecordGuard:
		return t.recordGuard(c)
	case *Restore:
		return t.restore(c)
	case *FinishRestore:
		return t.finishRestore(c)
	case *RaiseLevel:
		return t.raiseLevel(c)
	case *Tick:
		return t.tick(c)
	case *CountDuplicates:
		return t.countDuplicates(c)
	}
	return DecisionFailedPrecondition
}

// flight is the record with the changes so far, or nil if the key was never used.
func (t *transition) flight() *Flight {
	if t.after != nil {
		return t.after
	}
	return t.before
}

// editFlight returns the record to be changed. Its attempts are a copy; all other pointers and slices are shared with the
// record before the command, and must be replaced, never modified.
func (t *transition) editFlight() *Flight {
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
func (t *transition) latestTime() Time { return t.header.Latest(t.header.Now) }

// newestAttempt returns the newest attempt, to be changed. The flight must have an attempt.
func (t *transition) newestAttempt() *Attempt {
	f := t.editFlight()
	return &f.Attempts[len(f.Attempts)-1]
}

func (t *transition) emit(k EventKind, e Event) {
	e.Kind, e.At = k, t.header.Now
	if e.Generation == 0 {
		e.Generation = t.flight().Generation
	}
	t.events = append(t.events, e)
}

// absent reports whether the key was never used or was freed.
func (t *transition) absent() bool { return t.flight() == nil || t.flight().State == StateAbsent }

// answerBusy returns DecisionBusy: the command is too early, or another holder has the key. until is the time at which that
// ends, or 0 if only an event ends it.
func (t *transition) answerBusy(until Time) Decision {
	if until > 0 {
		t.wait = max(0, until.Until(t.header.Now))
	}
	return DecisionBusy
}

// answerFinal answers a submission to a flight that is over, or with another input: conflict before expired before replay. It
// returns DecisionNone for every other flight.
func (t *transition) answerFinal(fp Fingerprint) Decision {
	switch f := t.flight(); {
	case t.absent():
		return DecisionNone
	case !f.Fingerprint.Matches(fp):
		return DecisionConflict
	case f.State == StateExpired:
		return DecisionExpired
	case f.State.Terminal():
		return DecisionReplay
	}
	return DecisionNone
}

// answerCurrent answers a command that changes nothing with the present state of the flight.
func (t *transition) answerCurrent() Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case f.State == StateExpired:
		return DecisionExpired
	case f.State.Terminal():
		return DecisionReplay
	case f.State == StateInDoubt:
		return DecisionInDoubt
	case f.State == StateAwaitingApproval:
		return DecisionAwaitingApproval
	}
	return DecisionAccepted
}

// createFlight creates the flight of an absent key from its first submission.
func (t *transition) createFlight(s *Submission) {
	f := t.editFlight()
	f.Key = t.key
	f.Fingerprint, f.Input, f.Policy = s.Fingerprint, s.Input, s.Policy
	f.InputGeneration = f.Generation
	f.CreatedAt = t.header.Now
	if s.Policy.RunAfter > 0 && !s.Policy.Saga {
		f.NotBefore = t.header.Now.Add(s.Policy.RunAfter)
	}
	if s.Policy.Saga {
		f.Phase = PhaseForward
	}
	f.Requester = Sanitize(s.Requester)
	t.emit(EventSubmitted, Event{Actor: f.Requester, Note: Sanitize(s.Reason)})
	if s.Policy.Approval {
		f.State = StateAwaitingApproval
		return
	}
	t.makeReady()
}

// makeReady makes the flight ready, or scheduled where its NotBefore has not passed.
func (t *transition) makeReady() {
	f := t.editFlight()
	f.State = StateReady
	if f.NotBefore > t.header.Now {
		f.State = StateScheduled
		return
	}
	f.NotBefore = 0
}

// closeAttempt ends the open attempt with an outcome.
func (t *transition) closeAttempt(o Outcome) {
	a := t.newestAttempt()
	a.ClosedAt, a.Outcome = t.header.Now, o
	t.editFlight().Wake = nil
}

// taint marks the flight as tainted by its newest attempt.
func (t *transition) taint() {
	if a := t.newestAttempt(); !a.Taints {
		a.Taints = true
		t.editFlight().TaintingAttempts++
	}
}

// untaintNewest removes the taint of the newest attempt alone.
func (t *transition) untaintNewest() {
	if a := t.newestAttempt(); a.Taints {
		a.Taints = false
		t.editFlight().TaintingAttempts--
	}
}

// untaintAll removes the taint of every attempt: the outcome of the flight is known.
func (t *transition) untaintAll() {
	f := t.editFlight()
	f.TaintingAttempts = 0
	for i := range f.Attempts {
		f.Attempts[i].Taints = false
	}
}

// endWithReceipt ends the flight with its receipt. From this command on the receipt never changes (invariant I4).
func (t *transition) endWithReceipt(r Receipt) {
	f := t.editFlight()
	r.At, r.ExternalID = t.header.Now, Sanitize(r.ExternalID)
	f.Receipt = &r
	f.State = StateSucceeded
	if r.Outcome == OutcomeRefused {
		f.State = StateFailed
	}
	t.clearLive("")
	t.detectOverlaps()
}

// endWithoutReceipt ends the flight without a receipt, as failed or cancelled.
func (t *transition) endWithoutReceipt(s State, cause string) {
	f := t.editFlight()
	f.State = s
	t.clearLive(cause)
	kind := EventFailed
	if s == StateCancelled {
		kind = EventCancelled
	}
	e := Event{Note: cause}
	if f.Cancel != nil {
		e.Actor = f.Cancel.Actor
	}
	t.emit(kind, e)
	t.detectOverlaps()
}

// clearLive clears the fields that only a flight in progress has.
func (t *transition) clearLive(cause string) {
	t.untaintAll()
	f := t.editFlight()
	f.Verification, f.Wake, f.NotBefore, f.Cause, f.FinishedAt = nil, nil, 0, Sanitize(cause), t.header.Now
	f.Steps = 0
	if t.key.IsStep() {
		f.Ended = t.header.Version
	}
}

// nextGeneration ends the present generation and starts an empty one. The fence is kept, and attempt numbers continue.
func (t *transition) nextGeneration(by Attribution) *Flight {
	old := t.editFlight()
	next := &Flight{ID: old.ID, Key: t.key, Generation: old.Generation + 1, Fence: old.Fence, Overlap: old.Overlap,
		Evidence: old.Evidence, EvidenceOmitted: old.EvidenceOmitted, Verifications: old.Verifications, Duplicates: old.Duplicates}
	state := old.State
	if state == StateExpired {
		state = old.FinalState
	}
	next.PreviousGenerations = append(slices.Clip(old.PreviousGenerations), PreviousGeneration{Generation: old.Generation, State: state, Receipt: old.Receipt, EndedBy: by})
	next.UsedNonces = t.usedNoncesOf(old)
	t.after = next
	return next
}

// Sanitize returns a text from outside in the form in which the ledger stores it: truncated to MaxText bytes, and without
// invalid UTF-8.
func Sanitize(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText]
	}
	return strings.ToValidUTF8(s, "")
}
