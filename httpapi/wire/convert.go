package wire

import (
	"github.com/flightd/flightd/flight"
)

// FlightOf converts a flight. body is the stored part of its receipt's body, which is included if withBody is true.
func FlightOf(f *flight.Flight, body []byte, withBody bool) *Flight {
	w := &Flight{
		ID: f.ID.String(), Key: f.Key.String(), State: f.State.String(), Version: f.Version.String(),
		Generation: f.Generation, Attempts: f.AttemptCount, Fingerprint: f.Fingerprint.String(),
		Cause: f.Cause, Tainted: f.Tainted(), Verifying: f.Verifying(), Overlap: f.Overlap,
		CreatedAt: timeOf(f.CreatedAt), NotBefore: timeOf(f.NotBefore), FinishedAt: timeOf(f.FinishedAt), EvidenceMore: f.EvidenceOmitted,
	}
	if f.State != flight.StateExpired && f.State != flight.StateAbsent {
		w.Recovery = f.Policy.Recovery.String()
		w.ExpiresAt = timeOf(f.ExpiresAt())
	}
	if f.Place != nil && f.Place.Queue.Action != f.Key.Name() {
		w.Action = f.Place.Queue.Action
	}
	w.Approval = approvalRequestOf(f)
	if f.Cancel != nil {
		w.CancelRequested = attributionOf(f.Cancel)
	}
	if f.Resolution != nil {
		w.Resolution = &Resolution{Result: FindingWord(f.Resolution.Finding), Attribution: *attributionOf(&f.Resolution.By)}
	}
	if f.Redacted != nil {
		w.Redacted = attributionOf(f.Redacted)
	}
	if a := f.Newest(); a != nil {
		w.LastAttempt = AttemptOf(a)
	}
	switch {
	case f.Receipt == nil:
	case f.State == flight.StateExpired: // only the outcome and the digest are left
		w.Receipt = &Receipt{Outcome: f.Receipt.Outcome.String(), Digest: f.Receipt.Body.Digest.String()}
	default:
		w.Receipt = receiptOf(f.Receipt, body, withBody)
	}
	for i := range f.Evidence {
		w.Evidence = append(w.Evidence, evidenceOf(&f.Evidence[i]))
	}
	for i := range f.PreviousGenerations {
		w.PreviousGenerations = append(w.PreviousGenerations, previousGenerationOf(&f.PreviousGenerations[i]))
	}
	return w
}

// CallbackUntil returns the time until which an attempt waits for its callback; zero: it waits for none.
func CallbackUntil(f *flight.Flight, h flight.Header) Time {
	if f.State != flight.StateWaiting || !f.Wake.Callback {
		return Time{}
	}
	return timeOf(f.Deadline(&h))
}

// HeldUntil returns the time before which the open attempt of a flight is not taken over, because etcd has lost its
// session and a person has accepted that loss. It is zero if there is no such attempt.
func HeldUntil(f *flight.Flight, h flight.Header, now flight.Time) Time {
	a := f.OpenAttempt()
	if a == nil || a.Session.Epoch >= h.LeaseEpoch || now >= h.EpochHold {
		return Time{}
	}
	return timeOf(h.EpochHold)
}

func timeOf(t flight.Time) Time {
	if t == 0 {
		return Time{}
	}
	return Time{t.AsTime()}
}

func attributionOf(m *flight.Attribution) *Attribution {
	return &Attribution{Actor: m.Actor, Reason: m.Reason, At: timeOf(m.At)}
}

// AttemptOf converts an attempt.
func AttemptOf(a *flight.Attempt) *Attempt {
	return &Attempt{Attempt: a.Number, Outcome: a.Outcome.String(), Error: a.Error, Owner: a.Owner, Lost: a.Lost,
		OpenedAt: timeOf(a.OpenedAt), ClosedAt: timeOf(a.ClosedAt)}
}

func receiptOf(r *flight.Receipt, body []byte, withBody bool) *Receipt {
	w := &Receipt{Outcome: r.Outcome.String(), ExternalID: r.ExternalID, ContentType: r.Body.ContentType, Size: r.Body.Size,
		Truncated: r.Truncated(), Digest: r.Body.Digest.String(), Attempt: r.Attempt, From: r.Source.String(), At: timeOf(r.At)}
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
		Error: e.Error, At: timeOf(e.At)}
	if !e.Digest.IsZero() {
		w.Digest = e.Digest.String()
	}
	return w
}

func previousGenerationOf(p *flight.PreviousGeneration) PreviousGeneration {
	w := PreviousGeneration{Generation: p.Generation, State: p.State.String(), Actor: p.EndedBy.Actor, Reason: p.EndedBy.Reason, At: timeOf(p.EndedBy.At)}
	if p.Receipt != nil {
		w.ExternalID, w.Digest = p.Receipt.ExternalID, p.Receipt.Body.Digest.String()
	}
	return w
}

// EventOf converts one entry of a history.
func EventOf(v flight.Version, e *flight.Event) Event {
	return Event{ID: v.String(), Kind: e.Kind.String(), At: timeOf(e.At), Generation: e.Generation, Attempt: e.Attempt,
		Outcome: e.Outcome.String(), Actor: e.Actor, Note: e.Note}
}

// DuplicateStatsOf converts the statistics of duplicates. It returns nil if there was no duplicate.
func DuplicateStatsOf(t *flight.DuplicateStats) *DuplicateStats {
	if t.Count == 0 {
		return nil
	}
	d := &DuplicateStats{Count: t.Count, FirstAt: timeOf(t.First), LastAt: timeOf(t.Last), Callers: make([]Caller, len(t.Callers))}
	for i, c := range t.Callers {
		d.Callers[i] = Caller{Actor: c.Actor, At: timeOf(c.At)}
	}
	return d
}

// The results of a verification, or of a person's decision about a doubt.
const (
	ResultHappened    = "happened"
	ResultNotHappened = "not_happened"
	ResultUnknown     = "unknown" // of a verification only
	ResultFail        = "fail"    // of a person only
)

// UnknownActor is the recorded actor of a decision without a name.
const UnknownActor = "unknown"

// FindingWord returns the word of the API for a finding.
func FindingWord(v flight.Finding) string {
	if v == flight.FindingNone {
		return ResultUnknown
	}
	return v.String()
}
