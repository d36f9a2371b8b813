// Package openapi writes the HTTP interface down: an OpenAPI 3.1 document and, from that document, a page for people.
//
// The door lists its routes as Operations, in one table of plain values. What travels in the bodies is derived by
// reflection from the types of package wire, so that a field stands in one place; what a field means, and its bounds, is
// in the table of fields here. Nothing of this is on the way of a request: the handlers and their encoders are written
// by hand, and tests hold them against the document.
package openapi
