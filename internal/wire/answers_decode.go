package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"time"
)

// UnmarshalJSON reads an answer, leniently and fast: it is what a client spends its time on.
func (a *OpenAnswer) UnmarshalJSON(data []byte) error { return readAnswer(bytes.Clone(data), a.field) }

// UnmarshalJSON reads an answer, leniently and fast: it is what a client spends its time on.
func (f *Flight) UnmarshalJSON(data []byte) error { return readAnswer(bytes.Clone(data), f.field) }

// DecodeAnswer reads the answer of a server. What it reads may go on using data.
func DecodeAnswer(data []byte, into any) error {
	switch v := into.(type) { // without the check of the whole that json.Unmarshal does first
	case *OpenAnswer:
		return readAnswer(data, v.field)
	case *Flight:
		return readAnswer(data, v.field)
	}
	return json.Unmarshal(data, into)
}

func readAnswer(data []byte, known func(s *scanner, name []byte) bool) error {
	s := &scanner{data: data, loose: true}
	if !s.is('{', "an object") {
		return errors.New(s.err.Error())
	}
	s.object(known)
	s.space()
	switch {
	case s.err != nil:
		return errors.New(s.err.Error())
	case s.pos != len(data):
		return errors.New("trailing data after the answer")
	}
	return nil
}

// object reads an object inside an answer.
func (s *scanner) object(known func(s *scanner, name []byte) bool) {
	if s.none || !s.is('{', "an object") {
		return
	}
	s.pos++
	s.fields(known)
}

// each reads an array of objects inside an answer.
func (s *scanner) each(item func() func(s *scanner, name []byte) bool) {
	if s.none || !s.is('[', "an array") {
		return
	}
	s.pos++
	s.space()
	if s.take(']') {
		return
	}
	for s.err == nil {
		s.space()
		s.object(item())
		s.space()
		if s.take(']') {
			return
		}
		s.expect(',')
	}
}

func (s *scanner) text() string { return s.str(math.MaxInt) }

func (s *scanner) count() uint32 { return uint32(s.integer(0, math.MaxUint32)) }

func (s *scanner) time() Time {
	text := s.text()
	if s.none || s.err != nil {
		return Time{}
	}
	t, ok := parseTime(text)
	if !ok {
		var err error
		if t, err = time.Parse(time.RFC3339, text); err != nil {
			s.wrong("%q is not a time", text)
		}
	}
	return Time{t}
}

// parseTime reads TimeFormat.
func parseTime(text string) (time.Time, bool) {
	if len(text) != len(TimeFormat) || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
		text[16] != ':' || text[19] != '.' || text[23] != 'Z' {
		return time.Time{}, false
	}
	var n [7]int
	for i, at := range [...][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}, {20, 23}} {
		for _, c := range []byte(text[at[0]:at[1]]) {
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			n[i] = 10*n[i] + int(c-'0')
		}
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], n[6]*1e6, time.UTC)
	return t, t.Day() == n[2] && t.Hour() == n[3] && t.Minute() == n[4] && t.Second() == n[5] // nothing was carried over
}

func (a *OpenAnswer) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "decision":
		a.Decision = s.text()
	case "nonce":
		a.Nonce = s.text()
	case "flight_id":
		a.FlightID = s.text()
	case "key":
		a.Key = s.text()
	case "generation":
		a.Generation = s.count()
	case "attempt":
		a.Attempt = s.count()
	case "fencing_token":
		a.FencingToken = s.text()
	case "idempotency_key":
		a.IdempotencyKey = s.text()
	case "probe":
		a.Probe = s.text()
	case "input":
		a.Input = s.raw()
	case "input_base64":
		a.InputBase64 = s.base64()
	case "input_content_type":
		a.InputType = s.text()
	case "session":
		a.Session = s.text()
	case "trust_ms":
		a.TrustMS = s.integer(math.MinInt64, math.MaxInt64)
	case "renew_every_ms":
		a.RenewEveryMS = s.integer(0, math.MaxInt64)
	case "resend_ms":
		if ms := s.integer(0, math.MaxInt64); !s.none {
			a.ResendMS = &ms
		}
	case "deployment":
		a.Deployment = s.text()
	case "policy_differs":
		a.PolicyDiffers = s.boolean()
	case "policy":
		if !s.none {
			a.Policy = new(Policy)
			s.object(a.Policy.decode)
		}
	case "previous":
		if !s.none {
			a.Previous = new(Attempt)
			s.object(a.Previous.field)
		}
	case "flight":
		if !s.none {
			a.Flight = new(Flight)
			s.object(a.Flight.field)
		}
	default:
		return false
	}
	return true
}

func (a *Attempt) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "attempt":
		a.Attempt = s.count()
	case "outcome":
		a.Outcome = s.text()
	case "error":
		a.Error = s.text()
	case "owner":
		a.Owner = s.text()
	case "lost":
		a.Lost = s.boolean()
	case "opened_at":
		a.OpenedAt = s.time()
	case "closed_at":
		a.ClosedAt = s.time()
	default:
		return false
	}
	return true
}

func (f *Flight) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "id":
		f.ID = s.text()
	case "key":
		f.Key = s.text()
	case "state":
		f.State = s.text()
	case "source":
		f.Source = s.text()
	case "version":
		f.Version = s.text()
	case "generation":
		f.Generation = s.count()
	case "attempts":
		f.Attempts = s.count()
	case "recovery":
		f.Recovery = s.text()
	case "fingerprint":
		f.Fingerprint = s.text()
	case "cause":
		f.Cause = s.text()
	case "tainted":
		f.Tainted = s.boolean()
	case "looking":
		f.Looking = s.boolean()
	case "overlap":
		f.Overlap = s.boolean()
	case "evidence_more":
		f.EvidenceMore = s.count()
	default:
		return f.timeField(s, name) || f.innerField(s, name)
	}
	return true
}

func (f *Flight) timeField(s *scanner, name []byte) bool {
	switch string(name) {
	case "created_at":
		f.CreatedAt = s.time()
	case "not_before":
		f.NotBefore = s.time()
	case "held_until":
		f.HeldUntil = s.time()
	case "finished_at":
		f.FinishedAt = s.time()
	case "expires_at":
		f.ExpiresAt = s.time()
	default:
		return false
	}
	return true
}

func (f *Flight) innerField(s *scanner, name []byte) bool {
	switch string(name) {
	case "cancel_requested":
		if !s.none {
			f.CancelRequested = new(Mark)
			s.object(f.CancelRequested.field)
		}
	case "settled":
		if !s.none {
			f.Settled = new(Settled)
			s.object(f.Settled.field)
		}
	case "redacted":
		if !s.none {
			f.Redacted = new(Mark)
			s.object(f.Redacted.field)
		}
	case "last_attempt":
		if !s.none {
			f.LastAttempt = new(Attempt)
			s.object(f.LastAttempt.field)
		}
	case "receipt":
		if !s.none {
			f.Receipt = new(Receipt)
			s.object(f.Receipt.field)
		}
	case "evidence":
		s.each(func() func(*scanner, []byte) bool {
			f.Evidence = append(f.Evidence, Evidence{})
			return f.Evidence[len(f.Evidence)-1].field
		})
	case "past":
		s.each(func() func(*scanner, []byte) bool {
			f.Past = append(f.Past, Past{})
			return f.Past[len(f.Past)-1].field
		})
	default:
		return false
	}
	return true
}

func (m *Mark) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "who":
		m.Who = s.text()
	case "why":
		m.Why = s.text()
	case "at":
		m.At = s.time()
	default:
		return false
	}
	return true
}

func (d *Settled) field(s *scanner, name []byte) bool {
	if string(name) == "result" {
		d.Result = s.text()
		return true
	}
	return d.Mark.field(s, name)
}

func (r *Receipt) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "outcome":
		r.Outcome = s.text()
	case "external_id":
		r.ExternalID = s.text()
	case "content_type":
		r.ContentType = s.text()
	case "body":
		r.Body = s.raw()
	case "body_base64":
		r.BodyBase64 = s.base64()
	case "size":
		r.Size = int(s.integer(0, math.MaxInt))
	case "truncated":
		r.Truncated = s.boolean()
	case "digest":
		r.Digest = s.text()
	case "attempt":
		r.Attempt = s.count()
	case "from":
		r.From = s.text()
	case "at":
		r.At = s.time()
	default:
		return false
	}
	return true
}

func (e *Evidence) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "generation":
		e.Generation = s.count()
	case "attempt":
		e.Attempt = s.count()
	case "outcome":
		e.Outcome = s.text()
	case "external_id":
		e.ExternalID = s.text()
	case "digest":
		e.Digest = s.text()
	case "error":
		e.Error = s.text()
	case "at":
		e.At = s.time()
	default:
		return false
	}
	return true
}

func (p *Past) field(s *scanner, name []byte) bool {
	switch string(name) {
	case "generation":
		p.Generation = s.count()
	case "state":
		p.State = s.text()
	case "who":
		p.Who = s.text()
	case "why":
		p.Why = s.text()
	case "at":
		p.At = s.time()
	case "external_id":
		p.ExternalID = s.text()
	case "digest":
		p.Digest = s.text()
	default:
		return false
	}
	return true
}
