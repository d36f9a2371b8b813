package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/flightd/flightd/docs"
)

const documentPath = "/openapi.json"

// openapi serves GET /openapi.json.
func (sr *serverRoutes) openapi(w http.ResponseWriter, r *http.Request) error {
	writeResponse(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, docs.OpenAPI...) })
	return nil
}

// indentJSON formats JSON for people.
func indentJSON(data []byte) string {
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return string(data)
	}
	return out.String()
}
