package client

import (
	"context"
	"net/http"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// InputBody is the input of a flight as it was first submitted, byte for byte.
type InputBody struct {
	ContentType string
	Data        []byte
	Digest      string
}

// Input reads the exact bytes of a flight's input. *Missing is inside the error where the flight has no input or is not
// known; where its bytes were erased, or its retention is over, the code is expired.
func (c *Client) Input(ctx context.Context, id flight.ID) (*InputBody, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/input"), receipt: id.String()}) // its headers are a receipt's
	if err != nil {
		return nil, err
	}
	return &InputBody{ContentType: resp.header.Get("Content-Type"), Data: resp.body, Digest: resp.header.Get(wire.HeaderReceiptDigest)}, nil
}
