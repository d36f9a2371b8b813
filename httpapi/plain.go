package httpapi

import (
	"bytes"
	"net/http"

	"github.com/flightd/flightd/httpapi/wire"
)

// PlainHTTP returns a function that returns the complete answer, from the status line to the last byte, to a client that
// speaks plain HTTP at an address that speaks TLS. Nothing of the request is known or repeated.
func PlainHTTP() func() []byte {
	ids := newRequestIDs()
	return func() []byte {
		unknown := &http.Request{Method: http.MethodGet}
		answer := &recorder{header: http.Header{"Cache-Control": noStore, wire.HeaderRequestID: {ids.forRequest(unknown)}}}
		writeProblem(answer, unknown, problemOfInvalid(&wire.Invalid{Code: wire.Forbidden,
			FieldError: wire.FieldError{Detail: "this address speaks TLS, and the request came over plain HTTP"},
			Hint:       "use https:// in the address of the server; revoke a token that was sent with this request, because it travelled in clear text"}))
		var whole bytes.Buffer
		_, _ = whole.WriteString("HTTP/1.1 403 Forbidden\r\nConnection: close\r\n")
		_ = answer.header.Write(&whole) // a bytes.Buffer cannot fail
		_, _ = whole.WriteString("\r\n")
		_, _ = whole.Write(answer.Bytes())
		return whole.Bytes()
	}
}
