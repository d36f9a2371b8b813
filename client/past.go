package client

import (
	"context"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// The shapes of an import.
type (
	ImportLine    = wire.ImportLine
	ImportAnswer  = wire.ImportAnswer
	ImportTrouble = wire.ImportTrouble
)

// Bounds of one request that imports.
const (
	MaxImportLines = wire.MaxImportLines
	MaxImportBody  = wire.MaxImportBody
)

// importTry is how long one request that imports may take.
const importTry = time.Minute

// Redact erases the bytes of a finished flight's input and receipts. That it happened, and its digests, stay.
func (c *Client) Redact(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.decide(ctx, id, "/redact", version, r.AppendJSON(nil))
}

// Import brings receipts of effects that happened before flightd was asked: one ImportLine as JSON a line, of keys of
// the client's namespace. Keys that are known are left alone, so that it may be repeated. A line that cannot be read
// refuses all of them: the error says which. With dryRun nothing is changed, and the answer says what would be.
func (c *Client) Import(ctx context.Context, lines []byte, dryRun bool) (*ImportAnswer, error) {
	path := "/v1/flights:import"
	if dryRun {
		path += "?dry_run=true"
	}
	return decode[ImportAnswer](c.ask(ctx, request{
		method: http.MethodPost, path: path, body: lines, kind: wire.TypeNDJSON, actor: true, timeout: importTry,
	}))
}

// CheckImport reads one line as the server would, without asking one. Errors are *flight.InvalidError.
func CheckImport(line []byte, namespace string, now time.Time) error {
	one, bad := wire.DecodeImport(line)
	if bad == nil {
		_, bad = one.Command(namespace, now)
	}
	if bad != nil {
		return &flight.InvalidError{Field: bad.Pointer, Detail: bad.Detail}
	}
	return nil
}
