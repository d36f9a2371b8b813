// Package openapi generates the reference of the HTTP API, an OpenAPI 3.1 document.
//
// Package httpapi lists its routes as Operations. The schemas of the bodies are derived by reflection from the types of
// package wire, so a field is defined once. Its meaning and limits are in the tables of fields.go.
//
// Requests do not use this package. The handlers and encoders are written by hand, and tests check them against the
// document.
package openapi
