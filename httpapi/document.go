package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/flightd/flightd/httpapi/openapi"
	"github.com/flightd/flightd/httpapi/wire"
)

const documentPath = "/openapi.json"

// Document returns the OpenAPI document, as it is served. An error means that the tables do not match the code.
func Document() ([]byte, error) {
	b := &openapi.Spec{Title: "flightd", Version: "v1", Summary: "One key, one flight, one receipt",
		About: preface, Tags: tags(), Operations: operations()}
	routes := routePatterns()
	for i := range b.Operations {
		o := &b.Operations[i]
		need := routes[o.Pattern].access
		if o.Public, o.Verbs = need.public, need.verbs.Names(); !need.public {
			o.Problems = codes(o.Problems, wire.Unauthenticated)
		}
	}
	for _, class := range wire.Classes() {
		b.Problems = append(b.Problems, pageOf(class).ProblemPage)
	}
	doc, err := openapi.Build(b)
	if err != nil {
		return nil, err
	}
	return doc.JSON()
}

// routePatterns returns all routes, of a server that can serve none of them.
func routePatterns() map[string]route {
	cfg := &Config{}
	return routes(cfg, newRouter(cfg).responder, nil)
}

const preface = `flightd performs each business intent once. Callers, retries and restarts present the same key. At most one attempt at a time may perform the effect. The first outcome is stored as a receipt, and every caller gets that receipt.

flightd reads requests strictly: it rejects unknown fields, duplicate fields, wrong types and trailing data, and a rejected request has changed nothing. A null field counts as missing, except ` + "`body`" + `. Later versions of v1 may add fields to answers and codes to problems, so your client must ignore what it does not know.

A server that other machines can reach needs a token with each request: ` + "`Authorization: Bearer fltd_…`" + `. A token has verbs, and one namespace or all of them. A request without a valid token is answered ` + "`unauthenticated`" + `; one that the verbs or the namespace do not allow, ` + "`forbidden`" + `. A token of one namespace gets the same answer for a flight of another namespace and for a flight that does not exist. The session ids that you get belong to the namespace and the name of your token.

Times are RFC 3339 in UTC with milliseconds. Durations are integers, in fields that end in ` + "`_ms`" + `. The ledger has its own time, which never goes back. You set ` + "`not_after`" + ` in ledger time, as an integer, in milliseconds since 1970. Answers carry the ledger's time in the header ` + "`Flightd-Ledger-Time`" + `: get it once with ` + "`GET /version`" + `, advance it by your own monotonic clock, and correct it by later answers. Every error is a problem document (RFC 9457) with a stable ` + "`code`" + `; its ` + "`type`" + ` is the path of a page on this server.`

// openapi serves GET /openapi.json. The document is built by the first request.
func (sr *serverRoutes) openapi() handler {
	document := sync.OnceValues(Document)
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := document()
		if err != nil {
			return err
		}
		writeResponse(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, body...) })
		return nil
	}
}

// indentJSON formats JSON for people.
func indentJSON(data []byte) string {
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return string(data)
	}
	return out.String()
}
