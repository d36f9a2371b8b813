package auth

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flightd/flightd/flight"
)

// Documents is the part of the ledger that a Directory reads.
type Documents interface {
	// Documents returns the documents of a kind as applied at this node. They must not be changed.
	Documents(kind string) []*flight.Document
	// DocumentsVersion returns the version of the last change of any document that Documents shows.
	DocumentsVersion() flight.Version
}

// Credential is a token that was presented. It must not be changed.
type Credential struct {
	Namespace string // flight.AllNamespaces: all
	Name      string
	Verbs     Verbs
	ExpiresAt flight.Time // of the presented secret; 0: it does not expire
}

// AllNamespaces reports whether the credential is not bound to one namespace.
func (c *Credential) AllNamespaces() bool { return c.Namespace == flight.AllNamespaces }

// Covers reports whether the credential may act in a namespace; flight.AllNamespaces stands for all of them.
func (c *Credential) Covers(namespace string) bool {
	return c.AllNamespaces() || c.Namespace == namespace
}

// The errors of Check. Their texts are for the caller. None contains any part of what the caller presented.
var (
	ErrMissing   = errors.New("missing; send Authorization: Bearer and a token")
	ErrMalformed = errors.New("malformed; send one Authorization header: Bearer, one space, and the whole token, which begins with fltd_")
	ErrUnknown   = errors.New("the token is unknown or was revoked")
	ErrExpired   = errors.New("the token has expired")
)

// table is what the documents of one version say.
type table struct {
	version   flight.Version
	tokens    map[digest]*Credential
	limits    map[string]Limits
	otherwise Limits // of namespaces without a document
}

// Directory knows the tokens and the limits that the documents declare. It is safe for concurrent use.
type Directory struct {
	documents Documents
	log       *slog.Logger
	current   atomic.Pointer[table]

	mu      sync.Mutex // held while a new table is made; guards decoded
	decoded map[flight.DocumentID]decodedToken
}

// decodedToken is a token's document that was read for an earlier table.
type decodedToken struct {
	version flight.Version
	token   *Token // nil: it cannot be read
}

// NewDirectory returns a directory of the ledger's documents. A nil logger means slog.Default.
func NewDirectory(documents Documents, log *slog.Logger) *Directory {
	if log == nil {
		log = slog.Default()
	}
	return &Directory{documents: documents, log: log}
}

// Check returns the credential that the value of an Authorization header presents at a ledger time. Errors are
// ErrMissing, ErrMalformed, ErrUnknown and ErrExpired.
//
// The secret is not compared: the SHA-256 of the whole secret is looked up. So the time of a check says nothing about
// the secrets that exist.
func (d *Directory) Check(header string, now flight.Time) (*Credential, error) {
	if header == "" {
		return nil, ErrMissing
	}
	scheme, secret, found := strings.Cut(header, " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || !WellFormed(secret) {
		return nil, ErrMalformed
	}
	var text [maxSecret]byte // on the stack
	c := d.table().tokens[sha256.Sum256(text[:copy(text[:], secret)])]
	switch {
	case c == nil:
		return nil, ErrUnknown
	case c.ExpiresAt != 0 && now >= c.ExpiresAt:
		return nil, ErrExpired
	}
	return c, nil
}

// WellFormed reports whether a text has the form of a secret.
func WellFormed(secret string) bool {
	if len(secret) < secretLength || len(secret) > maxSecret || secret[:len(Prefix)] != Prefix {
		return false
	}
	for i := len(Prefix); i < secretLength; i++ {
		if !isSecretByte(secret[i]) {
			return false
		}
	}
	namespace := secret[secretLength:]
	for i := range len(namespace) {
		if !isSecretByte(namespace[i]) && namespace[i] != '.' {
			return false
		}
	}
	return namespace == "" || len(namespace) > 1 && namespace[0] == '.'
}

func isSecretByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// Limits returns the limits of a namespace: those of its document, else those of the settings, else the defaults, for
// each limit on its own. For flight.AllNamespaces it returns the limits of a namespace without a document.
func (d *Directory) Limits(namespace string) Limits {
	t := d.table()
	if l, found := t.limits[namespace]; found {
		return l
	}
	return t.otherwise
}

// table returns the table of the present documents.
func (d *Directory) table() *table {
	version := d.documents.DocumentsVersion()
	if t := d.current.Load(); t != nil && t.version == version {
		return t
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	version = d.documents.DocumentsVersion() // before the documents are read: a later change makes another table
	if t := d.current.Load(); t != nil && t.version == version {
		return t
	}
	t := d.read(version)
	d.current.Store(t)
	return t
}

// read makes a table; the caller holds the lock. A token that cannot be read permits nothing, and limits that cannot be read are those of a
// namespace without a document.
func (d *Directory) read(version flight.Version) *table {
	t := &table{version: version, tokens: make(map[digest]*Credential), limits: make(map[string]Limits), otherwise: defaultLimits()}
	decoded := make(map[flight.DocumentID]decodedToken)
	for _, doc := range d.documents.Documents(flight.KindToken) {
		entry := d.decoded[doc.ID]
		if entry.version != doc.Version {
			var err error
			entry.version = doc.Version
			if entry.token, err = DecodeToken(doc.Body); err != nil {
				d.log.Error("auth: the document of a token cannot be read, so the token is invalid", "document", doc.ID.String(), "error", err)
			}
		}
		decoded[doc.ID] = entry
		if entry.token == nil {
			continue
		}
		token := entry.token
		for _, s := range token.Secrets {
			t.tokens[s.SHA256] = &Credential{Namespace: doc.ID.Namespace, Name: doc.ID.Name, Verbs: token.Verbs, ExpiresAt: s.ExpiresAt}
		}
	}
	d.decoded = decoded
	readLimits := func(doc *flight.Document, otherwise Limits) (Limits, bool) {
		l, err := DecodeLimits(doc.Body)
		if err != nil {
			d.log.Error("auth: the limits of a document cannot be read and are not applied", "document", doc.ID.String(), "error", err)
		}
		return l.or(otherwise), err == nil
	}
	for _, doc := range d.documents.Documents(flight.KindSettings) {
		if doc.ID != LimitsID(flight.AllNamespaces) {
			continue
		}
		if l, ok := readLimits(doc, t.otherwise); ok {
			t.otherwise = l
		}
	}
	for _, doc := range d.documents.Documents(flight.KindNamespace) {
		if l, ok := readLimits(doc, t.otherwise); ok && doc.ID == LimitsID(doc.ID.Namespace) {
			t.limits[doc.ID.Namespace] = l
		}
	}
	return t
}
