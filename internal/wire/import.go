package wire

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
)

// TypeNDJSON is the content type of one JSON object a line.
const TypeNDJSON = "application/x-ndjson"

// Bounds of one request that imports.
const (
	MaxImportLines = 2000
	MaxImportBody  = 4 << 20
)

// ImportLine is one receipt that is brought along: a line of POST /v1/flights:import.
type ImportLine struct {
	Key         string          `json:"key"`                   // the full one: namespace/name/id
	Outcome     string          `json:"outcome"`               // succeeded or refused
	Input       json.RawMessage `json:"input,omitempty"`       // what was asked for, where it is known
	Fingerprint string          `json:"fingerprint,omitempty"` // "sha256:…", "none", or empty: of the input, and none where there is no input
	CreatedAt   string          `json:"created_at,omitempty"`
	FinishedAt  string          `json:"finished_at,omitempty"` // the retention counts from here; empty: from now
	Retention   string          `json:"retention,omitempty"`   // "30d", "12h"; empty: the default
	Body
}

// ImportAnswer says what became of the lines of one request.
type ImportAnswer struct {
	Lines     int             `json:"lines"`
	Imported  int             `json:"imported"`
	Existing  int             `json:"existing"` // left alone: what is stored says the same, or is a tombstone
	DryRun    bool            `json:"dry_run,omitempty"`
	Differing []ImportTrouble `json:"differing,omitempty"` // left alone, and worth a look
}

// ImportTrouble is a line whose key was left alone although the ledger does not say what the line says.
type ImportTrouble struct {
	Line     int    `json:"line"` // the first one is 1
	Key      string `json:"key"`
	FlightID string `json:"flight_id"`
	State    string `json:"state"`
	Detail   string `json:"detail"`
}

// DecodeImport reads one line.
func DecodeImport(data []byte) (r ImportLine, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "key":
			r.Key = s.str(maxWord)
		case "outcome":
			r.Outcome = s.str(maxWord)
		case "input":
			r.Input = s.raw()
		case "fingerprint":
			r.Fingerprint = s.str(maxWord)
		case "created_at":
			r.CreatedAt = s.str(maxWord)
		case "finished_at":
			r.FinishedAt = s.str(maxWord)
		case "retention":
			r.Retention = s.str(maxWord)
		default:
			return r.Body.decode(s, name)
		}
		return true
	})
	if bad != nil && bad.Pointer == "" { // it is about the whole document, which is a line here
		bad.Detail = strings.Replace(bad.Detail, "the body is", "the line is", 1)
	}
	return r, bad
}

// Command is the line as the ledger takes it. now is the reader's own time: what finished long after it is a mistake.
func (r *ImportLine) Command(namespace string, now time.Time) (*flight.Import, *Invalid) {
	c := &flight.Import{ExternalID: r.ExternalID}
	for _, fill := range [...]func(*flight.Import) *Invalid{
		func(c *flight.Import) *Invalid { return r.fillKey(c, namespace) }, r.fillOutcome, r.fillInput,
		func(c *flight.Import) *Invalid { return r.fillTimes(c, now) },
	} {
		if bad := fill(c); bad != nil {
			return nil, bad
		}
	}
	return c, nil
}

func (r *ImportLine) fillKey(c *flight.Import, namespace string) *Invalid {
	if r.Key == "" {
		return &Invalid{Code: KeyRequired, FieldError: FieldError{Pointer: "/key", Detail: "it is missing"}}
	}
	key, bad := ParseKey(r.Key, BadField("/key", ""))
	if bad != nil {
		return withHint(bad, "a full key reads namespace/name/id, as in default/charge/order-42")
	}
	switch {
	case key.IsStep():
		return BadField("/key", "a step of a saga belongs to its saga and cannot be imported by itself")
	case key.Namespace() != namespace:
		return withHint(BadField("/key", "it is of namespace %s, the request is about %s", key.Namespace(), namespace),
			"import one namespace at a time: -n NAMESPACE, or the header "+HeaderNamespace)
	}
	c.Key = key
	return nil
}

func (r *ImportLine) fillOutcome(c *flight.Import) (bad *Invalid) {
	switch r.Outcome {
	case flight.Succeeded.String():
		c.Outcome = flight.Succeeded
	case flight.Refused.String():
		c.Outcome = flight.Refused
	default:
		return BadField("/outcome", "an outcome with a receipt is succeeded or refused; what did not happen needs no import")
	}
	c.Body, bad = r.Blob()
	return bad
}

func (r *ImportLine) fillInput(c *flight.Import) (bad *Invalid) {
	if r.Input == nil && r.Fingerprint == "" {
		return nil // nobody remembers it: the key alone decides
	}
	open := OpenRequest{Input: r.Input, Fingerprint: r.Fingerprint}
	s, bad := open.Submission()
	c.Fingerprint, c.Input = s.Fingerprint, s.Input
	return bad
}

// clocks is how far the clocks of two machines may be apart.
const clocks = 5 * time.Minute

func (r *ImportLine) fillTimes(c *flight.Import, now time.Time) *Invalid {
	var bad *Invalid
	read := func(pointer, text string) flight.Time {
		if text == "" || bad != nil {
			return 0
		}
		t, err := time.Parse(time.RFC3339, text)
		switch {
		case err != nil:
			bad = BadField(pointer, "a time reads like 2026-11-20T14:03:00Z, not %.40q", text)
		case t.After(now.Add(clocks)):
			bad = BadField(pointer, "%s has not come yet", text)
		case t.UnixMilli() <= 0:
			bad = BadField(pointer, "%s is before 1970", text)
		}
		return flight.Time(t.UnixMilli())
	}
	c.CreatedAt, c.FinishedAt = read("/created_at", r.CreatedAt), read("/finished_at", r.FinishedAt)
	if bad == nil && c.CreatedAt > c.FinishedAt && c.FinishedAt > 0 {
		bad = BadField("/created_at", "it is later than finished_at")
	}
	if bad == nil && r.Retention != "" {
		var err error
		if c.Retention, err = ParseRetention(r.Retention); err != nil {
			bad = BadField("/retention", "%v", err)
		}
	}
	return bad
}

// AppendJSON writes the line, without a line break.
func (r *ImportLine) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("key", r.Key)
	w.str("outcome", r.Outcome)
	w.optRaw("input", r.Input)
	w.optStr("fingerprint", r.Fingerprint)
	w.optStr("created_at", r.CreatedAt)
	w.optStr("finished_at", r.FinishedAt)
	w.optStr("retention", r.Retention)
	r.Body.fill(&w)
	w.close()
	return w.b
}

// IsNDJSONType reports whether a content type is that of one JSON object a line.
func IsNDJSONType(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case TypeNDJSON, "application/ndjson", "application/jsonl":
		return true
	}
	return false
}
