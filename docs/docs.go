// Package docs holds the documents that the server serves.
package docs

import _ "embed"

// OpenAPI is the reference of the HTTP API, an OpenAPI 3.1 document. A test of package httpapi generates it.
//
//go:embed openapi.json
var OpenAPI []byte
