package client

import (
	"context"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Requests and answers of an import.
type (
	ImportLine    = wire.ImportLine
	ImportAnswer  = wire.ImportAnswer
	ImportTrouble = wire.ImportDifference
)

// Bounds of one import request.
const (
	MaxImportLines = wire.MaxImportLines
	MaxImportBody  = wire.MaxImportBody
)

// importTryTimeout bounds one import request.
const importTryTimeout = time.Minute

// Redact erases the bytes of a finished flight's input and receipts. The flight, its outcome and the digests stay.
func (c *Client) Redact(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.operatorRequest(ctx, id, "/redact", version, &r)
}

// Import stores receipts of effects that happened without flightd: one ImportLine per line, as JSON, for keys of the
// client's namespace. Known keys are not changed, so an import may be repeated. A malformed line rejects all lines; the
// error names it. With dryRun nothing is changed, and the answer says which changes it would make.
func (c *Client) Import(ctx context.Context, lines []byte, dryRun bool) (*ImportAnswer, error) {
	path := "/v1/flights:import"
	if dryRun {
		path += "?dry_run=true"
	}
	return decode[ImportAnswer](c.ask(ctx, request{
		method: http.MethodPost, path: path, body: lines, contentType: wire.TypeNDJSON, actor: true, timeout: importTryTimeout,
	}))
}

// CheckImport checks one line as the server does, without a request. Errors are *flight.InvalidError.
func CheckImport(line []byte, namespace string, now time.Time) error {
	parsed, bad := wire.DecodeImport(line)
	if bad == nil {
		_, bad = parsed.Command(namespace, now)
	}
	if bad != nil {
		return &flight.InvalidError{Field: bad.Pointer, Detail: bad.Detail}
	}
	return nil
}
