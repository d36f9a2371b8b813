package ledgerlog

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
)

// Seen counts what endangered the promises, as far as the log shows it. A rule made each of it harmless, or Check has found a violation.
type Seen struct {
	Events  map[string]int // of histories, by kind
	Answers map[string]int // to commands, by command and decision, such as "Open conflict"
	Lost    []*LostAttempt
	Ends    []flight.Time // of sessions
	Hazards [44]int       // how often the log shows each row of docs/hazards.md, by its number
}

// LostAttempt is an attempt that ended without a report.
type LostAttempt struct {
	Key, Owner  string
	Number      uint32
	Cause       string
	Next        uint32 // the attempt after it; 0: there is none
	SameSession bool   // has opened the next one
	Restarted   bool   // its owner had a newer session when it was lost
	Reported    bool   // later
	GivenUp     bool   // later its caller said that nothing was sent
	session     flight.Session
	nonce       flight.Nonce
}

const (
	// sessionEnded is the cause of the loss of an attempt whose session has ended.
	sessionEnded = "its session has ended"
	// handlerHung is the error of an attempt whose handler had not returned 15 s after its time-out.
	handlerHung = "the handler did not return after its time-out"
)

// watch counts.
type watch struct {
	seen   *Seen
	term   uint64                       // of the entry that is applied
	terms  map[[sha256.Size]byte]uint64 // by command that has changed a flight
	lost   map[string][]*LostAttempt    // by key
	newest map[string]flight.Session    // by owner
}

func newWatch(seen *Seen) *watch {
	seen.Events, seen.Answers = make(map[string]int), make(map[string]int)
	return &watch{seen: seen, terms: make(map[[sha256.Size]byte]uint64), lost: make(map[string][]*LostAttempt), newest: make(map[string]flight.Session)}
}

// step counts what a step shows.
func (w *watch) step(s *step) {
	seen, f := w.seen, s.before.Flight
	seen.Answers[strings.TrimPrefix(fmt.Sprintf("%T ", s.command), "*flight.")+s.reply.Decision.String()]++
	has, newest := make(map[flight.EventKind]bool), cmp.Or(f.Newest(), new(flight.Attempt))
	for _, e := range s.reply.Events {
		seen.Events[e.Kind.String()]++
		has[e.Kind] = true
		switch a := f.OpenAttempt(); {
		case e.Kind == flight.EventLost && a != nil:
			l := &LostAttempt{Key: s.key.String(), Owner: a.Owner, Number: a.Number, Cause: e.Note, session: a.Session, nonce: a.Nonce, Restarted: w.newest[a.Owner].Revision > a.Session.Revision}
			seen.Lost, w.lost[l.Key] = append(seen.Lost, l), append(w.lost[l.Key], l)
		case e.Kind == flight.EventInDoubt && strings.HasPrefix(e.Note, "the provider may have forgotten"):
			seen.Hazards[32]++
		case e.Kind == flight.EventInDoubt && s.key.IsUndo():
			seen.Hazards[41]++
		}
	}
	switch c := s.command.(type) {
	case *flight.Open:
		w.open(s, c, has[flight.EventOpened])
	case *flight.Report:
		for _, l := range w.lost[s.key.String()] {
			if l.Number == c.Token.Number {
				l.Reported, l.GivenUp = true, l.GivenUp || c.Outcome == flight.OutcomeNotDone
			}
		}
		fenced, isStep := has[flight.EventReportFenced] && f != nil, s.key.IsStep() && !s.key.IsUndo() && c.Outcome == flight.OutcomeSucceeded
		seen.count(9, f != nil && s.reply.Decision == flight.DecisionAccepted && !s.reply.Changed)
		seen.count(16, has[flight.EventReported] && c.Error == handlerHung)
		seen.count(6, has[flight.EventReported] && newest.Lost && newest.Error == sessionEnded)
		seen.count(5, fenced && c.Token.Number < f.Fence.Number)
		seen.count(43, fenced && f.Resolution != nil)
		seen.count(42, has[flight.EventReported] && isStep && s.before.Saga != nil && s.before.Saga.Cancel != nil)
		seen.count(42, fenced && isStep) // the step had ended otherwise
	case *flight.Abandon:
		for _, l := range w.lost[s.key.String()] {
			l.GivenUp = l.GivenUp || l.nonce == c.Nonce
		}
		seen.count(7, has[flight.EventAbandoned] && newest.Lost)
		seen.count(8, has[flight.EventAbandoned] && !newest.Lost)
	case *flight.Suspend:
		seen.count(39, f != nil && f.Policy.Saga && s.reply.Decision == flight.DecisionFenced && c.Token.Number <= f.Fence.Number) // another drive has opened since
	case *flight.Resolve:
		seen.count(43, f != nil && s.reply.Decision == flight.DecisionFailedPrecondition && c.Generation == f.Generation && f.Receipt != nil &&
			f.Receipt.Source == flight.SourceReport)
	}
	switch s.command.(type) {
	case *flight.Open, *flight.Report, *flight.Abandon, *flight.Resolve, *flight.ReportFinding, *flight.DecideApproval:
		w.again(s.command, s.reply.Changed)
	}
}

func (s *Seen) count(hazard int, is bool) {
	if is {
		s.Hazards[hazard]++
	}
}

func (w *watch) open(s *step, c *flight.Open, opened bool) {
	seen, f := w.seen, s.before.Flight
	switch newest, open := f.Newest(), f.OpenAttempt(); {
	case c.Session == (flight.Session{}): // a driver's
		seen.count(39, opened && open != nil)
	case s.before.SessionEnded && newest != nil && newest.Session.ID != c.Session.ID: // another session has opened the key since
		seen.Hazards[1]++
	case s.reply.Decision == flight.DecisionSessionEnded:
		seen.Hazards[7]++
	case open != nil && open.Nonce == c.Nonce:
		seen.Hazards[8]++
	case open != nil && open.Session.ID == c.Session.ID:
		seen.Hazards[11]++
	case opened && newest != nil && newest.Session.ID == c.Session.ID:
		seen.count(12, newest.Error == handlerHung)
	}
	saga := s.before.Saga
	seen.count(40, saga != nil && !s.key.IsUndo() && saga.Cancel != nil && saga.Phase != flight.PhaseCommitted && (s.reply.Decision == flight.DecisionFenced || f != nil && f.State == flight.StateCancelled))
	for _, l := range w.lost[s.key.String()] {
		if opened && l.Next == 0 {
			l.Next, l.SameSession = s.reply.Token.Number, l.session.ID == c.Session.ID
		}
	}
	if opened && w.newest[c.Owner].Revision < c.Session.Revision {
		w.newest[c.Owner] = c.Session
	}
}

// again counts a command whose bytes are in the log already.
func (w *watch) again(c flight.Command, changed bool) {
	text, err := flight.Encode(c)
	if err != nil {
		return // the log has it, so it cannot fail
	}
	hash := sha256.Sum256(text)
	switch term, known := w.terms[hash]; {
	case known:
		w.seen.Hazards[10]++
		w.seen.count(28, term != w.term) // its proposer did not know what had become of the first copy
	case changed:
		w.terms[hash] = w.term
	}
}

// EndedTogether returns how many sessions ended within a second of the ledger's time with at least least others.
func (s *Seen) EndedTogether(least int) (count int) {
	for _, at := range s.Ends {
		from, _ := slices.BinarySearch(s.Ends, at-1000)
		to, _ := slices.BinarySearch(s.Ends, at+1001)
		if to-from > least {
			count++
		}
	}
	return count
}
