// Package httpapi is the HTTP API of a node. It turns requests into calls of package remote and of the ledger. It turns
// their results into JSON, or into problem documents (RFC 9457) with stable codes. It makes no decision about a flight.
//
// The types on the wire are in package wire, which the Go client shares.
//
// Each subject has a file with a type: the endpoints that it declares (endpoint.go), their functions, and the few ports that these
// need. An endpoint reads and validates the whole request before it calls its function, so a rejected request has changed nothing. The
// function knows nothing of HTTP: it returns the answer, or the error to answer with, and the responder (problem.go) writes its problem.
// Only routes with a stream or with other content than JSON read and write HTTP themselves. A new subject is a new file, a line in
// the function routes, and its descriptions in operations. Its scope (access.go, scope.go) says what the sender may see.
//
// With Callers.Auth, each route checks the token of the request (access.go), and callers of one namespace learn nothing of
// the others (scope.go): flights are read by flightOf only, sessions and cursors are sealed for the caller.
//
// Answers carry the ledger's time in a header, because callers compute not_after from it.
//
// This package stores nothing. If the process dies inside a handler, the caller receives no answer and repeats the
// request: an open or an abandon with the same nonce, a report with the same token, a decision with the same If-Match.
package httpapi
