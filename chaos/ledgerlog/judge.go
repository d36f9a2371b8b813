package ledgerlog

import (
	"fmt"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flight/flighttest"
)

// judge judges each step by the promises. It follows each key through commands, replies and events, and uses none of the rules:
//
//	one open attempt    an attempt opens when no other is open, under a nonce of its own, and is granted to that nonce alone
//	fencing token       it rises with each attempt of a key
//	accepted report     is of the newest attempt, before the flight has ended; a repeat changes nothing
//	receipt kept        a generation of a key has one outcome and digest, those of the accepted report, for ever
//	no way back         generations and versions rise; an ended generation stays as it ended, and a person begins the next one
//	end of a doubt      by a person with name and reason, by the attempt itself, or by a cancel that undoes the step in any case
//	phase of a saga     leaves forward once, by BeginUndo or PassPivot
//	nothing after mark  a forward step opens after the cancel of its saga only to find out what has happened, and not after the flip
//	undo after step     an undo opens in undoing, after its step has ended and has happened, or is unknown and safe if absent
//	order of undos      one at a time, in the reverse order of the ends of their steps
//	step                what package flighttest says
type judge struct {
	report   func(Violation)
	accounts map[flight.ID]*account
	undos    map[flight.Key][]*account // by saga: the undos that were submitted
}

// account is what the log has said of one key so far.
type account struct {
	key       flight.Key
	last      flight.Flight // of the last reply
	token     flight.Token  // of the newest attempt
	nonce     flight.Nonce  // that has opened it
	open      bool          // it is open
	started   bool          // an attempt of this generation has opened
	unsure    bool          // an attempt of this generation has ended with an unknown outcome
	nonces    map[flight.Nonce]bool
	receipts  map[uint32]result // by generation
	submitted flight.Version
	ended     flight.Version // where the generation ended
	happened  flight.Version // of a step: where it ended as happened or unknown, or a later success was reported
}

// result is the part of a receipt that a tombstone keeps.
type result struct {
	outcome flight.Outcome
	digest  flight.Digest
}

func (j *judge) account(key flight.Key, id flight.ID) *account {
	if j.accounts[id] == nil {
		j.accounts[id] = &account{key: key, nonces: make(map[flight.Nonce]bool), receipts: make(map[uint32]result)}
	}
	return j.accounts[id]
}

// adopt begins the account of a flight that is older than the log.
func (j *judge) adopt(f *flight.Flight) {
	a := j.account(f.Key, f.ID)
	a.last, a.token, a.open, a.started, a.unsure, a.ended = *f, f.Fence, f.OpenAttempt() != nil, f.AttemptCount > 0, f.Tainted(), f.Ended
	for i := range f.Attempts {
		a.nonce = f.Attempts[i].Nonce
		a.nonces[a.nonce] = true
	}
	for _, p := range append([]flight.PreviousGeneration{{Generation: f.Generation, Receipt: f.Receipt}}, f.PreviousGenerations...) {
		if p.Receipt != nil {
			a.receipts[p.Generation] = result{p.Receipt.Outcome, p.Receipt.Body.Digest}
		}
	}
	if f.State == flight.StateSucceeded || f.Unknown || f.Overlap {
		a.happened = f.Ended
	}
	if f.Place != nil {
		a.submitted = f.Place.Since
	}
	if f.Key.IsUndo() {
		j.undos[f.Key.Saga()] = append(j.undos[f.Key.Saga()], a)
	}
}

// judge judges a step and writes it into the account of its key.
func (j *judge) judge(s *step) {
	broken := func(rule, format string, args ...any) {
		j.report(Violation{rule, s.key.String(), s.at.Index, fmt.Sprintf("%T answered %v: ", s.command, s.reply.Decision) + fmt.Sprintf(format, args...)})
	}
	if err := flighttest.Check(s.before, s.command, s.after, s.reply); err != nil {
		broken("step", "%v", err)
	}
	if s.key.IsZero() || s.after.Header.RestoredFrom != 0 { // reports of attempts that a restored ledger has lost are accepted
		return
	}
	a, f := j.account(s.key, s.key.FlightID()), s.reply.Flight
	if f == nil {
		if a.token.Number > 0 || len(a.receipts) > 0 {
			broken("no way back", "a used key was forgotten")
		}
		return
	}
	report, reported := (*flight.Report)(nil), false
	for _, e := range s.reply.Events {
		if a.open && e.Attempt == a.token.Number && (e.Kind == flight.EventReported || e.Kind == flight.EventAbandoned || e.Kind == flight.EventLost ||
			e.Kind == flight.EventSuspended && f.Policy.Saga) {
			a.open = false
		}
		a.unsure = a.unsure || e.Outcome == flight.OutcomeUnknown && e.Kind != flight.EventReportFenced
		switch e.Kind {
		case flight.EventSubmitted:
			a.submitted = s.at
			if s.key.IsUndo() {
				j.undos[s.key.Saga()] = append(j.undos[s.key.Saga()], a)
			}
		case flight.EventOpened:
			j.judgeOpened(s, a, broken)
		case flight.EventReported:
			reported = true
			if report, _ = s.command.(*flight.Report); report == nil || s.reply.Decision != flight.DecisionAccepted || report.Token != a.token ||
				report.Generation != a.last.Generation || a.last.State.Terminal() {
				broken("accepted report", "the newest attempt is %v of generation %d, %v", a.token, a.last.Generation, a.last.State)
			}
		case flight.EventReportFenced: // a late success is undone too
			if e.Outcome == flight.OutcomeSucceeded && a.happened == (flight.Version{}) {
				a.happened = s.at
			}
		}
	}
	if c, ok := s.command.(*flight.Open); ok && s.reply.Decision == flight.DecisionProceed && (s.reply.Token != a.token || c.Nonce != a.nonce || !a.open) {
		broken("one open attempt", "the token %v is granted; the newest attempt is %v, open %v, or of another nonce", s.reply.Token, a.token, a.open)
	}
	if c, ok := s.command.(*flight.Report); ok && s.reply.Decision == flight.DecisionAccepted && !reported && (s.reply.Changed || c.Token.Number > a.token.Number) {
		broken("accepted report", "it is no repeat, and has no event")
	}

	for _, p := range append([]flight.PreviousGeneration{{Generation: f.Generation, Receipt: f.Receipt}}, f.PreviousGenerations...) {
		kept, ok := a.receipts[p.Generation]
		if r := p.Receipt; r != nil && !ok {
			kept, ok = result{r.Outcome, r.Body.Digest}, true
			a.receipts[p.Generation] = kept
		}
		if ok && (p.Receipt == nil || kept != result{p.Receipt.Outcome, p.Receipt.Body.Digest}) {
			broken("receipt kept", "that of generation %d is another one", p.Generation)
		}
	}
	if reported && report != nil && report.Outcome == flight.OutcomeSucceeded && a.receipts[f.Generation].digest != report.Body.Digest {
		broken("receipt kept", "the accepted success is not the receipt")
	}
	j.judgeChange(s, a, broken)
	if f.Generation != a.last.Generation {
		a.started, a.unsure, a.ended, a.happened = false, false, flight.Version{}, flight.Version{}
	}
	if f.State.Terminal() && a.ended == (flight.Version{}) {
		a.ended = s.at
		if f.State == flight.StateSucceeded || f.Unknown && f.Policy.SafeIfAbsent {
			a.happened = s.at
		}
	}
	a.last = *f
}

// judgeOpened judges the opening of an attempt.
func (j *judge) judgeOpened(s *step, a *account, broken func(rule, format string, args ...any)) {
	c, ok := s.command.(*flight.Open)
	token := s.reply.Token
	if !ok || a.open && !s.reply.Flight.Policy.Saga || a.nonces[c.Nonce] { // a saga's driver ends the attempt of the one before
		broken("one open attempt", "token %v; the attempt before, %v, is open, or its nonce has opened one before", token, a.token)
	}
	if token.Number <= a.token.Number || token.StoreEpoch < a.token.StoreEpoch {
		broken("fencing token", "%v after %v", token, a.token)
	}
	saga := &j.account(s.key.Saga(), s.key.Saga().FlightID()).last
	switch {
	case s.key.IsUndo():
		j.judgeUndo(a, saga.Phase, broken)
	case s.key.IsStep() && (saga.Phase == flight.PhaseUndoing || saga.Phase == flight.PhaseForward && saga.Cancel != nil && !(a.started && a.unsure)):
		broken("nothing after mark", "a forward step opened; its saga is cancelled, in phase %d", saga.Phase)
	}
	if a.open, a.started, a.token = true, true, token; ok {
		a.nonce, a.nonces[c.Nonce] = c.Nonce, true
	}
}

func (j *judge) judgeUndo(a *account, phase flight.Phase, broken func(rule, format string, args ...any)) {
	stepOf := func(undo *account) *account {
		key, _ := undo.key.Saga().Step(strings.TrimSuffix(undo.key.StepName(), ".undo")) // the name of an undo has one of a step in it
		return j.account(key, key.FlightID())
	}
	own := stepOf(a)
	if phase != flight.PhaseUndoing || own.ended == (flight.Version{}) || own.happened == (flight.Version{}) {
		broken("undo after step", "the saga is in phase %d; its step has ended at %v, with something to undo since %v", phase, own.ended, own.happened)
	}
	for _, other := range j.undos[a.key.Saga()] {
		switch before := stepOf(other); {
		case other == a || !other.started:
		case !other.last.State.Terminal():
			broken("order of undos", "%s has not ended", other.key)
		case !a.started && own.ended.After(before.ended) && !own.happened.After(other.submitted):
			broken("order of undos", "%s has opened before, and its step has ended earlier", other.key)
		}
	}
}

// judgeChange judges what became of state, phase and generation.
func (j *judge) judgeChange(s *step, a *account, broken func(rule, format string, args ...any)) {
	was, is := &a.last, s.reply.Flight
	if was.Version.After(is.Version) {
		broken("no way back", "version %v after %v", is.Version, was.Version)
	}
	if was.State == flight.StateInDoubt && (is.State != was.State || is.Generation != was.Generation) {
		may := false
		switch c := s.command.(type) {
		case *flight.Resolve:
			may = c.Actor != "" && c.Reason != ""
		case *flight.Report: // judged above
			may = true
		case *flight.Abandon:
			may = c.Nonce == a.nonce
		case *flight.Cancel:
			may = !c.Driver.IsZero() && is.Unknown && is.Policy.SafeIfAbsent
		}
		if !may {
			broken("end of a doubt", "it became %v without a person who gave a reason, and without its policy", is.State)
		}
	}
	retry, _ := s.command.(*flight.Retry)
	free, _ := s.command.(*flight.FreeKey)
	_, expires := s.command.(*flight.Expire)
	switch {
	case was.Generation == 0: // unused before
	case was.Generation != is.Generation:
		if is.Generation != was.Generation+1 || !was.State.Terminal() || (retry == nil || retry.Actor == "") && (free == nil || free.Actor == "") {
			broken("no way back", "generation %d, %v, became generation %d", was.Generation, was.State, is.Generation)
		}
	case was.State.Terminal() && is.State != was.State && !(expires && is.State == flight.StateExpired):
		broken("no way back", "%v became %v", was.State, is.State)
	case is.State != flight.StateExpired && is.Phase != was.Phase && was.State != flight.StateAbsent:
		_, undo := s.command.(*flight.BeginUndo)
		_, pivot := s.command.(*flight.PassPivot)
		if was.Phase != flight.PhaseForward || !(undo && is.Phase == flight.PhaseUndoing || pivot && is.Phase == flight.PhaseCommitted) {
			broken("phase of a saga", "phase %d became %d", was.Phase, is.Phase)
		}
	}
}
