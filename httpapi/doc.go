// Package httpapi is the HTTP interface of a node. It turns requests into calls of package remote and of the ledger, and
// their answers into JSON, or into problem documents (RFC 9457) with stable codes. It decides nothing.
//
// The shapes on the wire are those of package wire, which the Go client shares. A request is read whole and strictly
// before anything else is done, so a request that is rejected has changed nothing.
//
// Every answer carries the ledger's time in a header, because callers set not_after by it.
//
// Nothing durable lives here. If the process dies inside a handler, the caller has no answer and asks again: an open or
// an abandon under its nonce, a report under its token, a decision under the version on which it was made.
package httpapi
