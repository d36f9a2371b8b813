package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/openapi"
	"github.com/flightd/flightd/internal/wire"
)

const documentPath = "/openapi.json"

// Document gives the OpenAPI document of this door, as it is served. An error means that the tables do not fit the code.
func Document() ([]byte, error) {
	doc, err := book()
	if err != nil {
		return nil, err
	}
	return doc.JSON()
}

// Reference gives the page of this door for people, in Markdown: the document once more.
func Reference() ([]byte, error) {
	doc, err := book()
	if err != nil {
		return nil, err
	}
	return doc.Markdown(), nil
}

func book() (*openapi.Document, error) {
	b := &openapi.Book{Title: "flightd", Version: "v1", Summary: "One key, one flight, one receipt",
		About: preface, Tags: chapters(), Operations: operations()}
	for _, class := range wire.Classes() {
		b.Problems = append(b.Problems, pageOf(class).ProblemPage)
	}
	return openapi.Build(b)
}

const preface = `flightd performs each business intent once. Any number of callers, retries and restarts may present the same key; one attempt at a time may act on it, the first outcome is stored as a receipt, and everybody gets that receipt.

Requests are read strictly: an unknown field, a duplicate field, a wrong type or trailing data is rejected, and nothing has been changed then. A field that is null counts as missing, except ` + "`body`" + `. Answers may get more fields, and problems more codes, in later versions of v1: read them leniently.

Times are RFC 3339 in UTC with milliseconds, durations are integers with ` + "`_ms`" + `. The ledger has a time of its own, which never goes back: ` + "`not_after`" + ` is set by it, as an integer, in milliseconds since 1970. Every answer carries the ledger's time in the header ` + "`Flightd-Ledger-Time`" + `; ask ` + "`GET /version`" + ` for it once, count on by your own monotonic clock, and correct it by later answers. Every error is a problem document (RFC 9457) with a stable ` + "`code`" + `; its ` + "`type`" + ` leads to a page of this server.`

// openapi serves GET /openapi.json. The document is made when it is first asked for.
func (a *api) openapi() http.HandlerFunc {
	document := sync.OnceValues(Document)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := document()
		if err != nil {
			a.fail(w, r, flight.Key{}, err)
			return
		}
		send(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, body...) })
	}
}

// indented writes JSON for people.
func indented(data []byte) string {
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return string(data)
	}
	return out.String()
}
