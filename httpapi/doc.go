// Package httpapi is the HTTP door of a node: it turns requests into calls of the executor's desk and of the ledger, and
// what they answer into JSON, or into problem documents (RFC 9457) with stable codes. It decides nothing.
//
// The shapes on the wire are those of package wire, which the Go client shares. A request is read whole and strictly
// before anything is asked of anybody, so that whatever is refused has changed nothing.
//
// Nothing that is durable lives here. If the process dies inside a handler, the caller saw no answer, and asks again:
// an open under its nonce, a report under its token, a decision under the version it was made on.
package httpapi
