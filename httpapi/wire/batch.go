package wire

import (
	"encoding/json"
	"strings"

	"github.com/flightd/flightd/internal/strictjson"
)

// Bounds of one batch.
const (
	MaxBatchLines = 1000
	MaxBatchBody  = 4 << 20
)

// BatchLine is one request of POST /v1/flights:batch: exactly one of open, report and abandon.
type BatchLine struct {
	Open        json.RawMessage `json:"open,omitzero"`        // the body of POST /v1/flights:open
	Report      json.RawMessage `json:"report,omitzero"`      // the body of POST /v1/flights/{id}/report
	Abandon     json.RawMessage `json:"abandon,omitzero"`     // the body of POST /v1/flights:abandon
	FlightID    string          `json:"flight_id,omitzero"`   // with report: the {id} of its path
	Namespace   string          `json:"namespace,omitzero"`   // in place of the header of the batch
	Traceparent string          `json:"traceparent,omitzero"` // likewise
}

// BatchAnswer is the answer to one line: what the route of the line would have answered.
type BatchAnswer struct {
	Line   int             `json:"line"` // counted from 1
	Status int             `json:"status"`
	Index  string          `json:"index,omitzero"` // the header Flightd-Index of the answer
	Body   json.RawMessage `json:"body,omitzero"`
	Base64 []byte          `json:"body_base64,omitzero"` // in place of body, where that has a line break: its bytes count
}

// DecodeBatchLine reads one line. The request in it is not read.
func DecodeBatchLine(data []byte) (l BatchLine, bad *Invalid) {
	return l, ofLine(decodeFields(data, &l))
}

// ofLine is the error for a line instead of a body.
func ofLine(bad *Invalid) *Invalid {
	if bad != nil && bad.Pointer == "" {
		bad.Detail = strings.Replace(bad.Detail, "the body is", "the line is", 1)
	}
	return bad
}

// Request returns the path and the body of the line's request.
func (l *BatchLine) Request() (path string, body []byte, bad *Invalid) {
	requests := 0
	for _, r := range [...]struct {
		path string
		body json.RawMessage
	}{{"/v1/flights:open", l.Open}, {"/v1/flights:abandon", l.Abandon}, {"/v1/flights/" + l.FlightID + "/report", l.Report}} {
		if nullToNil(r.body) != nil {
			path, body = r.path, r.body
			requests++
		}
	}
	switch {
	case requests != 1:
		return "", nil, setHint(BadField("", "the line has %d requests", requests), "send exactly one of open, report and abandon in a line")
	case l.Report == nil && l.FlightID != "":
		return "", nil, BadField("/flight_id", "allowed only with report")
	case l.Report != nil && (l.FlightID == "" || strings.ContainsAny(l.FlightID, "/?")):
		return "", nil, BadField("/flight_id", "missing or malformed; send the flight_id from the answer to the open")
	}
	return path, body, nil
}

// DecodeBatchAnswer reads the answer to one line, whose body may be nested deeper than a document of its own.
func DecodeBatchAnswer(data []byte) (a BatchAnswer, err error) {
	if err = strictjson.DecodeAnswer(data, &a); err == nil && a.Base64 != nil {
		a.Body = a.Base64
	}
	return a, err
}
