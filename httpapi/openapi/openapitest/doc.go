// Package openapitest holds what a server is asked and answers against its OpenAPI document. It is for tests: a door
// that is watched by a Checker is checked by every request that any test sends it.
//
// Answers are checked strictly: a field, a header, a status or a code that the document does not have is an error,
// although clients must bear with them. Requests are checked where the server took them, so that the document asks for
// no more than the server does.
package openapitest
