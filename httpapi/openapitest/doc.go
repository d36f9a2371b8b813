// Package openapitest checks the requests and answers of a server under test against its OpenAPI document. A handler
// that is wrapped by Checker.Watch is checked by every request that a test sends to it.
//
// Answers are checked strictly: an undocumented field, header, status or code is an error, although clients must accept
// them. Requests are checked if the server accepted them, so the document cannot be stricter than the server.
package openapitest
