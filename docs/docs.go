// Package docs holds the documents that the server serves.
package docs

import _ "embed"

// OpenAPI is the reference of the HTTP API, an OpenAPI 3.1 document. Its texts are written by hand. A test of package httpapi derives the
// rest from the code.
//
//go:embed openapi.json
var OpenAPI []byte
