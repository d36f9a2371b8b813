package wire

import (
	"errors"
	"strings"

	"github.com/flightd/flightd/flight"
)

// MaxLimit is the greatest value of a limit of a namespace.
const MaxLimit = int64(1_000_000_000_000)

// TokenPrefix begins every token.
const TokenPrefix = "fltd_"

// TokenNamespace returns the namespace at the end of a token, or "" for a token of all namespaces, and for any other text.
func TokenNamespace(token string) string {
	secret, found := strings.CutPrefix(token, TokenPrefix)
	if !found {
		return ""
	}
	_, namespace, _ := strings.Cut(secret, ".")
	return namespace
}

// TokenRequest is the body of POST /v1/tokens.
type TokenRequest struct {
	Name        string   `json:"name" limit:"word"`
	Namespace   string   `json:"namespace,omitzero" limit:"word"` // AllNamespaces: all; empty: that of the request
	Verbs       []string `json:"verbs,omitempty"`                 // empty: submit and read; with rotate: unchanged
	ExpiresInMS int64    `json:"expires_in_ms,omitzero" limit:"ms"`
	Rotate      bool     `json:"rotate,omitzero"`                 // the token exists: give it a new secret
	KeepOldMS   int64    `json:"keep_old_ms,omitzero" limit:"ms"` // with rotate: how long the older secrets stay valid
	Reason      string   `json:"reason" limit:"text"`
	Actor       string   `json:"actor,omitzero" limit:"word"`
}

// NewToken is the answer to POST /v1/tokens. It is the only place where a secret is shown.
type NewToken struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Verbs     []string `json:"verbs"`
	ExpiresAt Time     `json:"expires_at,omitzero"`
	Token     string   `json:"token"`            // the secret
	NotYet    []string `json:"not_yet,omitzero"` // after a rotation: nodes that did not answer, and may take the old secret for 60 s
}

// Token describes a token without its secrets.
type Token struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Verbs     []string `json:"verbs"` // empty: the document cannot be read, and the token is invalid
	CreatedAt Time     `json:"created_at"`
	ExpiresAt Time     `json:"expires_at,omitzero"` // of the secret that ends last, or ended last if none is valid; absent: one does not expire
	Secrets   int      `json:"secrets"`             // how many are valid
	Version   string   `json:"version"`
}

// TokenList is the answer of GET /v1/tokens.
type TokenList struct {
	Tokens []Token `json:"tokens"`
}

// WhoAmI is the answer of GET /v1/whoami: the credential of the request.
type WhoAmI struct {
	Name      string   `json:"name"` // empty: the server needs no credentials
	Namespace string   `json:"namespace"`
	Verbs     []string `json:"verbs"`
	ExpiresAt Time     `json:"expires_at,omitzero"`
}

// ReasonRequest is the body of DELETE /v1/tokens/{namespace}/{name} and DELETE /v1/namespaces/{name}.
type ReasonRequest struct {
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"`
}

// NamespaceLimits are the limits of a namespace. In a request, a field that is 0 has the value of the namespace "*",
// else its default.
type NamespaceLimits struct {
	OpensPerSecond int64 `json:"opens_per_second,omitzero" limit:"quota"`
	Burst          int64 `json:"burst,omitzero" limit:"quota"`
	MaxOpen        int64 `json:"max_open,omitzero" limit:"quota"`
	MaxFlights     int64 `json:"max_flights,omitzero" limit:"quota"`
	MaxWaits       int64 `json:"max_waits,omitzero" limit:"quota"`
	MaxStreams     int64 `json:"max_streams,omitzero" limit:"quota"`
}

// NamespaceRequest is the body of PUT /v1/namespaces/{name}.
type NamespaceRequest struct {
	NamespaceLimits
	Reason string `json:"reason" limit:"text"`
	Actor  string `json:"actor,omitzero" limit:"word"`
}

// Namespace is a namespace, its limits in force, and its use.
type Namespace struct {
	Name string `json:"name"` // AllNamespaces: the limits of namespaces that declare none
	NamespaceLimits
	Open   int64 `json:"open"`   // attempts without a report
	Stored int64 `json:"stored"` // flights, without tombstones
}

// NamespaceList is the answer of GET /v1/namespaces.
type NamespaceList struct {
	Namespaces []Namespace `json:"namespaces"`
	Tombstones int64       `json:"tombstones,omitzero"` // of all namespaces; only for a token of all namespaces
}

// AuditEntry is one line of the audit log.
type AuditEntry struct {
	At        Time   `json:"at"`
	Version   string `json:"version"` // of the command, in the ledger's log
	Verb      string `json:"verb"`
	Namespace string `json:"namespace"`        // AllNamespaces: the whole deployment
	Subject   string `json:"subject,omitzero"` // the key of a flight, or the kind and name of a document
	Actor     string `json:"actor,omitzero"`
	Reason    string `json:"reason,omitzero"`
}

// AuditPage is the answer of GET /v1/audit, newest entries first.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next,omitzero"` // the before of the next page; empty on the last page
}

// CheckName rejects a name of a token or a namespace that has another form than the namespace of a key. place is where
// the request has the name.
func CheckName(name string, place FieldError) *Invalid {
	_, err := flight.NewKey(name, "action", "id")
	if err == nil {
		return nil
	}
	var invalid *flight.InvalidError
	if place.Detail = err.Error(); errors.As(err, &invalid) {
		place.Detail = invalid.Detail
	}
	return &Invalid{Code: InputInvalid, FieldError: place}
}
