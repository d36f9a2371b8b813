package flight

import (
	"slices"
	"strings"
	"time"
)

// How long an Open may be valid.
const (
	// MaxOpenLife bounds how far ahead of the ledger's time the NotAfter of an Open may be that opens something. A used
	// nonce and an ended session are remembered until every Open that names them has expired by it.
	MaxOpenLife = time.Minute
	// MaxNonceLife bounds how long a nonce is remembered whose NotAfter is further ahead than MaxOpenLife. Its Open opens
	// nothing, and a copy that arrives later, when the NotAfter is no longer too far ahead, opens nothing either.
	MaxNonceLife = time.Hour
)

// Apply is the whole of the rules: what one command does to what it sees. It is pure: the same view and command give
// the same answer on every node, for ever; it reads no clock and draws no chance. Flights in v are not changed.
//
// The returned view holds the header and the flight as the command leaves them. Reply.Changed says whether the flight
// must be stored. The flight's version becomes that of the command, except where nothing but a used nonce or a count of
// duplicates was added: people decide by the version that they have seen. The invariants of the package comment hold
// for every view that Apply returns, if they held before.
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

// turn is one application of one command.
type turn struct {
	header Header
	key    Key
	before *Flight // as it was; never changed
	after  *Flight // as it becomes; nil until something changes
	saga   *Flight
	ended  bool // the session of the Open is remembered as ended
	events []Event
	wait   time.Duration
	quiet  bool // what changed is no new version of the flight
	gone   bool // nothing is left of the flight
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

// flight is the record as the command has left it so far; nil when the key was never used.
func (t *turn) flight() *Flight {
	if t.after != nil {
		return t.after
	}
	return t.before
}

// edit gives the record to be changed. What it points to is shared with the record before: replace it, do not change
// it; only the attempts are the turn's own.
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

// latest is the moment of the command by the clock that is furthest ahead.
func (t *turn) latest() Time { return t.header.Latest(t.header.Now) }

// newest is the newest attempt, to be changed. There must be one.
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

// busy answers that it is too early, or that another holder is in the way, until the given moment; 0 when only an event
// will end that.
func (t *turn) busy(until Time) Decision {
	if until > 0 {
		t.wait = max(0, until.Until(t.header.Now))
	}
	return Busy
}

// settled answers a submission whose key is settled, conflict before gone before replay; NoDecision where it is not.
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

// standing answers with the present state of a flight, to a command that does not change it.
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

// create makes the flight of an absent key, as its first submission wants it.
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

// enqueue makes the flight queued, or scheduled where it has to wait first.
func (t *turn) enqueue() {
	f := t.edit()
	f.State = Queued
	if f.NotBefore > t.header.Now {
		f.State = Scheduled
		return
	}
	f.NotBefore = 0
}

// close ends the open attempt.
func (t *turn) close(o Outcome) {
	a := t.newest()
	a.ClosedAt, a.Outcome = t.header.Now, o
	t.edit().Wake = nil
}

// doubt taints the flight by its newest attempt.
func (t *turn) doubt() {
	if a := t.newest(); !a.Doubt {
		a.Doubt = true
		t.edit().Doubts++
	}
}

// undoubt takes back the doubt of the newest attempt alone.
func (t *turn) undoubt() {
	if a := t.newest(); a.Doubt {
		a.Doubt = false
		t.edit().Doubts--
	}
}

// clear takes back all doubt: it is known what happened.
func (t *turn) clear() {
	f := t.edit()
	f.Doubts = 0
	for i := range f.Attempts {
		f.Attempts[i].Doubt = false
	}
}

// tryAgain lets a flight with nothing open run once more, not before delay, unless that is over: cancelled, or its
// retry policy spent. Where it is over while tainted, the doubt decides.
func (t *turn) tryAgain(delay time.Duration) {
	f := t.edit()
	switch {
	case f.Policy.Saga: // driving again is harmless and never capped; a cancelled saga must be driven back
	case f.Cancel != nil && f.Tainted():
		t.escalate("cancelled while an effect of unknown outcome may have happened")
		return
	case f.Cancel != nil:
		t.finish(StateCancelled, f.Cancel.Why)
		return
	case t.spent(delay) && f.Tainted():
		t.escalate("retries are spent while an effect of unknown outcome may have happened")
		return
	case t.spent(delay):
		t.finish(StateFailed, "retries are spent")
		return
	case f.Tainted() && !f.WithinWindow(t.latest().Add(delay)):
		t.escalate("the provider may have forgotten our key, so that a resend could be a second effect")
		return
	}
	t.again(delay)
}

// again lets a flight with nothing open run once more, whatever its policy says of it.
func (t *turn) again(delay time.Duration) {
	f := t.edit()
	f.Probe, f.Wake, f.NotBefore, f.Cause = nil, nil, 0, ""
	if delay > 0 {
		f.NotBefore = t.header.Now.Add(delay)
		t.note(EventScheduled, Event{Attempt: f.AttemptNumber()})
	}
	t.enqueue()
}

// spent reports whether the declared retry policy allows no attempt after delay.
func (t *turn) spent(delay time.Duration) bool {
	f := t.flight()
	p := f.Policy.Retry
	if !p.Declared() {
		return false
	}
	late := p.Within > 0 && f.FirstSend > 0 && t.header.Now.Add(delay) >= f.FirstSend.Add(p.Within)
	return int(f.Counted) >= p.Attempts || late
}

// delay is the pause before the next attempt: by the declared policy, or as long as the provider asked for.
func (t *turn) delay(asked time.Duration) time.Duration {
	f := t.flight()
	return max(asked, f.Policy.Retry.Backoff(f.ID, int(f.Counted)))
}

// settleDoubt applies the recovery policy to a tainted flight with nothing open.
func (t *turn) settleDoubt(delay time.Duration) {
	f := t.edit()
	switch {
	case f.Policy.Saga, f.Policy.Recovery == Resend:
		t.tryAgain(delay)
	case f.Policy.Recovery == Verify:
		t.startLooking()
	default:
		t.hold("the effect may or may not have happened, and its recovery is hold")
	}
}

// escalate is for doubt that a resend may not end: look up if the action can, else a person.
func (t *turn) escalate(cause string) {
	if t.edit().Policy.CanLookUp() {
		t.startLooking()
		return
	}
	t.hold(cause)
}

// hold leaves the flight to a person.
func (t *turn) hold(cause string) {
	f := t.edit()
	f.State, f.Probe, f.Wake, f.NotBefore, f.Cause = InDoubt, nil, nil, 0, cause
	t.note(EventInDoubt, Event{Attempt: f.AttemptNumber(), Note: cause})
}

// land ends the flight with its receipt, which from here on never changes (invariant I4).
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

// finish ends the flight without a receipt.
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

// end clears what only a living flight has.
func (t *turn) end(cause string) {
	t.clear()
	f := t.edit()
	f.Probe, f.Wake, f.NotBefore, f.Cause, f.FinishedAt = nil, nil, 0, Text(cause), t.header.Now
}

// nextGeneration ends the present generation and starts an empty one. The fence stays, attempt numbers go on.
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

// Text is what the ledger keeps of a text that people or programs wrote: at most MaxText bytes of it, without anything
// that is no UTF-8.
func Text(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText]
	}
	return strings.ToValidUTF8(s, "")
}
