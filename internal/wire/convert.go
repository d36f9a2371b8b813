package wire

import (
	"github.com/flightd/flightd/flight"
)

// FlightOf converts a flight. body is the stored part of its receipt's body, which is included if withBody is true.
func FlightOf(f *flight.Flight, body []byte, withBody bool) *Flight {
	w := &Flight{
		ID: f.ID.String(), Key: f.Key.String(), State: f.State.String(), Version: f.Version.String(),
		Generation: f.Generation, Attempts: f.AttemptCount, Fingerprint: f.Fingerprint.String(),
		Cause: f.Cause, Tainted: f.Tainted(), Looking: f.Looking(), Overlap: f.Overlap,
		CreatedAt: at(f.CreatedAt), NotBefore: at(f.NotBefore), FinishedAt: at(f.FinishedAt), EvidenceMore: f.EvidenceMore,
	}
	if f.State != flight.Expired && f.State != flight.Absent {
		w.Recovery = f.Policy.Recovery.String()
		w.ExpiresAt = at(f.ExpiresAt())
	}
	if f.Cancel != nil {
		w.CancelRequested = markOf(f.Cancel)
	}
	if f.Settled != nil {
		w.Settled = &Settled{Result: VerbWord(f.Settled.Verb), Mark: *markOf(&f.Settled.Mark)}
	}
	if f.Redacted != nil {
		w.Redacted = markOf(f.Redacted)
	}
	if a := f.Newest(); a != nil {
		w.LastAttempt = AttemptOf(a)
	}
	switch {
	case f.Receipt == nil:
	case f.State == flight.Expired: // only the outcome and the digest are left
		w.Receipt = &Receipt{Outcome: f.Receipt.Outcome.String(), Digest: f.Receipt.Body.Digest.String()}
	default:
		w.Receipt = receiptOf(f.Receipt, body, withBody)
	}
	for i := range f.Evidence {
		w.Evidence = append(w.Evidence, evidenceOf(&f.Evidence[i]))
	}
	for i := range f.Past {
		w.Past = append(w.Past, pastOf(&f.Past[i]))
	}
	return w
}

// HoldOf returns the time before which the open attempt of a flight is not taken over, because etcd has lost its
// session and a person has accepted that loss. It is zero if there is no such attempt.
func HoldOf(f *flight.Flight, h flight.Header, now flight.Time) Time {
	a := f.OpenAttempt()
	if a == nil || a.Session.Epoch >= h.LeaseEpoch || now >= h.EpochHold {
		return Time{}
	}
	return at(h.EpochHold)
}

func at(t flight.Time) Time {
	if t == 0 {
		return Time{}
	}
	return Time{t.At()}
}

func markOf(m *flight.Mark) *Mark { return &Mark{Who: m.Who, Why: m.Why, At: at(m.At)} }

// AttemptOf converts an attempt.
func AttemptOf(a *flight.Attempt) *Attempt {
	return &Attempt{Attempt: a.Number, Outcome: a.Outcome.String(), Error: a.Error, Owner: a.Owner, Lost: a.Lost,
		OpenedAt: at(a.OpenedAt), ClosedAt: at(a.ClosedAt)}
}

func receiptOf(r *flight.Receipt, body []byte, withBody bool) *Receipt {
	w := &Receipt{Outcome: r.Outcome.String(), ExternalID: r.ExternalID, ContentType: r.Body.ContentType, Size: r.Body.Size,
		Truncated: r.Body.Truncated(), Digest: r.Body.Digest.String(), Attempt: r.Attempt, From: r.Source.String(), At: at(r.At)}
	switch {
	case !withBody || len(body) == 0:
	case !w.Truncated && IsJSONType(w.ContentType) && ValidJSON(body):
		w.Body = body
	default:
		w.BodyBase64 = body
	}
	return w
}

func evidenceOf(e *flight.Evidence) Evidence {
	w := Evidence{Generation: e.Generation, Attempt: e.Token.Number, Outcome: e.Outcome.String(), ExternalID: e.ExternalID,
		Error: e.Error, At: at(e.At)}
	if !e.Digest.IsZero() {
		w.Digest = e.Digest.String()
	}
	return w
}

func pastOf(p *flight.Past) Past {
	w := Past{Generation: p.Generation, State: p.State.String(), Who: p.EndedBy.Who, Why: p.EndedBy.Why, At: at(p.EndedBy.At)}
	if p.Receipt != nil {
		w.ExternalID, w.Digest = p.Receipt.ExternalID, p.Receipt.Body.Digest.String()
	}
	return w
}

// EventOf converts one entry of a history.
func EventOf(v flight.Version, e *flight.Event) Event {
	return Event{ID: v.String(), Kind: e.Kind.String(), At: at(e.At), Generation: e.Generation, Attempt: e.Attempt,
		Outcome: e.Outcome.String(), Who: e.Who, Note: e.Note}
}

// DuplicatesOf converts the statistics of duplicates. It returns nil if there was no duplicate.
func DuplicatesOf(t *flight.Tally) *Duplicates {
	if t.Count == 0 {
		return nil
	}
	d := &Duplicates{Count: t.Count, FirstAt: at(t.First), LastAt: at(t.Last), Callers: make([]Caller, len(t.Callers))}
	for i, c := range t.Callers {
		d.Callers[i] = Caller{Who: c.Who, At: at(c.At)}
	}
	return d
}

// The results of a verification, or of a person's decision.
const (
	ResultHappened    = "happened"
	ResultNotHappened = "not_happened"
	ResultUnknown     = "unknown" // of a verification only
	ResultFail        = "fail"    // of a person only
)

// VerbWord returns the word of the API for a finding.
func VerbWord(v flight.Verb) string {
	if v == flight.NoVerb {
		return ResultUnknown
	}
	return v.String()
}
