package wire

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
)

// TypeNDJSON is the content type of one JSON object per line.
const TypeNDJSON = "application/x-ndjson"

// Bounds of one import request.
const (
	MaxImportLines = 2000
	MaxImportBody  = 4 << 20
)

// ImportLine is one receipt to import: a line of POST /v1/flights:import.
type ImportLine struct {
	Key         string          `json:"key" limit:"word"`                  // the full key: namespace/name/id
	Outcome     string          `json:"outcome" limit:"word"`              // succeeded or refused
	Input       json.RawMessage `json:"input,omitzero" null:"absent"`      // if it is known
	Fingerprint string          `json:"fingerprint,omitzero" limit:"word"` // "sha256:…", "none", or empty: computed from the input, "none" without an input
	CreatedAt   string          `json:"created_at,omitzero" limit:"word"`
	FinishedAt  string          `json:"finished_at,omitzero" limit:"word"` // the start of the retention; empty: now
	Retention   string          `json:"retention,omitzero" limit:"word"`   // "30d", "12h"; empty: the default
	Body
}

// ImportAnswer counts the results of the lines of one request.
type ImportAnswer struct {
	Lines     int                `json:"lines"`
	Imported  int                `json:"imported"`
	Existing  int                `json:"existing"` // not changed: the stored flight says the same, or is a tombstone
	DryRun    bool               `json:"dry_run,omitzero"`
	Differing []ImportDifference `json:"differing,omitempty"` // not changed, although they differ
}

// ImportDifference is a line that differs from the stored flight of its key, which was not changed.
type ImportDifference struct {
	Line     int    `json:"line"` // counted from 1
	Key      string `json:"key"`
	FlightID string `json:"flight_id"`
	State    string `json:"state"`
	Detail   string `json:"detail"`
}

// DecodeImport reads one line.
func DecodeImport(data []byte) (r ImportLine, bad *Invalid) {
	bad = ofLine(DecodeInto(data, &r))
	return r, bad
}

// Command returns the command for the line. now is the time of this process; a later time in the line is rejected.
func (l *ImportLine) Command(namespace string, now time.Time) (*flight.Import, *Invalid) {
	c := &flight.Import{ExternalID: l.ExternalID}
	bad := l.fillKey(c, namespace)
	if bad == nil {
		bad = l.fillOutcome(c)
	}
	if bad == nil {
		bad = l.fillInput(c)
	}
	if bad == nil {
		bad = l.fillTimes(c, now)
	}
	if bad != nil {
		return nil, bad
	}
	return c, nil
}

func (l *ImportLine) fillKey(c *flight.Import, namespace string) *Invalid {
	if l.Key == "" {
		return &Invalid{Code: KeyRequired, FieldError: FieldError{Pointer: "/key", Detail: "missing"}}
	}
	parsed, err := flight.ParseKey(l.Key)
	key, bad := explainKey(parsed, err, BadField("/key", ""))
	if bad != nil {
		return setHint(bad, "a full key is namespace/name/id, as in default/charge/order-42")
	}
	switch {
	case key.IsStep() && (l.Input != nil || l.Fingerprint != ""):
		return BadField("/input", "the input of a saga's step follows from its saga; leave out input and fingerprint")
	case key.IsStep() && l.Outcome == flight.OutcomeRefused.String():
		return BadField("/outcome", "only the success of a saga's step can be imported: a refused step is tried again, and refused again")
	case key.Namespace() != namespace:
		return setHint(BadField("/key", "belongs to namespace %s, but the request is for %s", key.Namespace(), namespace),
			"import one namespace at a time: -n NAMESPACE, or the header "+HeaderNamespace)
	}
	c.Key = key
	return nil
}

func (l *ImportLine) fillOutcome(c *flight.Import) (bad *Invalid) {
	switch l.Outcome {
	case flight.OutcomeSucceeded.String():
		c.Outcome = flight.OutcomeSucceeded
	case flight.OutcomeRefused.String():
		c.Outcome = flight.OutcomeRefused
	case "":
		return BadField("/outcome", "missing; send succeeded or refused")
	default:
		return BadField("/outcome", "must be succeeded or refused; other outcomes have no receipt to import")
	}
	c.Body, bad = l.Blob()
	return bad
}

func (l *ImportLine) fillInput(c *flight.Import) (bad *Invalid) {
	if l.Input == nil && l.Fingerprint == "" {
		return nil // the input is unknown: duplicates are recognized by the key alone
	}
	open := OpenRequest{Input: l.Input, Fingerprint: l.Fingerprint}
	s, bad := open.submission()
	c.Fingerprint, c.Input = s.Fingerprint, s.Input
	return bad
}

// maxClockSkew is the greatest accepted difference between the clocks of two machines.
const maxClockSkew = 5 * time.Minute

func (l *ImportLine) fillTimes(c *flight.Import, now time.Time) *Invalid {
	var bad *Invalid
	parse := func(pointer, text string) flight.Time {
		if text == "" || bad != nil {
			return 0
		}
		t, err := time.Parse(time.RFC3339, text)
		switch {
		case err != nil:
			bad = BadField(pointer, "must be a time like 2026-11-20T14:03:00Z, not %.40q", text)
		case t.After(now.Add(maxClockSkew)):
			bad = BadField(pointer, "%s is in the future", text)
		case t.UnixMilli() <= 0:
			bad = BadField(pointer, "%s is before 1970", text)
		}
		return flight.Time(t.UnixMilli())
	}
	c.CreatedAt, c.FinishedAt = parse("/created_at", l.CreatedAt), parse("/finished_at", l.FinishedAt)
	if bad == nil && c.CreatedAt > c.FinishedAt && c.FinishedAt > 0 {
		bad = BadField("/created_at", "must not be later than finished_at")
	}
	if bad == nil && l.Retention != "" {
		var err error
		if c.Retention, err = ParseRetention(l.Retention); err != nil {
			bad = BadField("/retention", "%v", err)
		}
	}
	return bad
}

// IsNDJSONType reports whether a content type is that of one JSON object per line.
func IsNDJSONType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case TypeNDJSON, "application/ndjson", "application/jsonl":
		return true
	}
	return false
}
