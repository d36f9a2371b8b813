// Package auth decides who may call the API and how much a namespace may use. Tokens and limits are documents of the
// ledger. Directory reads the documents, Limiter counts what the namespaces use at this node.
//
// A token is a random secret. The ledger stores only its SHA-256. A Directory compares the version of the documents at
// every check, so a revoked token is rejected from the next request on that this node receives after the revocation was
// applied. A document of a token that this build cannot read permits nothing.
//
// This package stores nothing. The counters of a Limiter begin at zero when the process starts.
package auth
