package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// Prefix begins every secret, so that scanners of repositories and logs find it.
const Prefix = wire.TokenPrefix

// secretLength is the length of a secret of all namespaces: the prefix and 32 random bytes in base64url.
const secretLength = len(Prefix) + 43

// maxSecret is the length of the longest secret, which has a dot and a namespace.
const maxSecret = secretLength + 1 + flight.MaxKeyPart

// MaxSecrets is how many valid secrets a token has at most.
const MaxSecrets = 4

// The names of documents that flightd itself creates or reads.
const (
	// AdminName is the name of the token that a node creates at the first start of a ledger.
	AdminName = "admin"
	// DefaultSettings is the name of the settings document with the limits of namespaces without a document.
	DefaultSettings = "default"
)

// NewSecret returns a new secret: "fltd_" and 32 random bytes in base64url. A secret of one namespace ends with a dot and
// its name, so that a client knows the namespace of its keys before it asks a server. The name permits nothing: the server
// looks up the whole secret.
func NewSecret(namespace string) string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	secret := Prefix + base64.RawURLEncoding.EncodeToString(b[:])
	if namespace == flight.AllNamespaces {
		return secret
	}
	return secret + "." + namespace
}

// digest is the SHA-256 of a whole secret.
type digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err != nil || len(raw) != len(d) {
		return errors.New("a digest has 64 hex digits")
	}
	*d = digest(raw)
	return nil
}

// Secret is one secret of a token, as the ledger stores it.
type Secret struct {
	SHA256    digest      `json:"sha256"`
	CreatedAt flight.Time `json:"created_at"`
	ExpiresAt flight.Time `json:"expires_at,omitzero"` // ledger time from which on the secret is invalid; 0: it does not expire
}

// validAt reports whether the secret is valid at a ledger time.
func (s *Secret) validAt(now flight.Time) bool { return s.ExpiresAt == 0 || now < s.ExpiresAt }

// Token is the body of a document of kind flight.KindToken. Its namespace and name are those of the document.
type Token struct {
	Verbs   Verbs    `json:"verbs"`
	Secrets []Secret `json:"secrets"`
}

// TokenID returns the id of the document of a token.
func TokenID(namespace, name string) flight.DocumentID {
	return flight.DocumentID{Namespace: namespace, Kind: flight.KindToken, Name: name}
}

// DecodeToken reads the body of a document. An unknown field is an error, because a later version may restrict a token
// by it.
func DecodeToken(body []byte) (*Token, error) {
	t := new(Token)
	if err := strictjson.DecodeRequest(body, t); err != nil {
		return nil, fmt.Errorf("auth: read token: %w", err)
	}
	if t.Verbs == 0 || len(t.Secrets) > MaxSecrets {
		return nil, errors.New("auth: read token: it has no verb, or too many secrets")
	}
	return t, nil
}

// Encode returns the body of the token's document.
func (t *Token) Encode() []byte { return strictjson.Append(nil, t) }

// ErrTooManySecrets is returned by Issue.
var ErrTooManySecrets = fmt.Errorf("the token has %d valid secrets, which is the maximum", MaxSecrets)

// Issue adds a new secret of the token's namespace and returns it. The older secrets end keepOld later, or at once if
// keepOld is 0; expired ones are removed. expires is the ledger time of the new secret's end, or 0. If too many secrets
// would be valid, Issue returns ErrTooManySecrets and changes nothing.
func (t *Token) Issue(namespace string, now, expires flight.Time, keepOld time.Duration) (secret string, err error) {
	var kept []Secret
	for _, s := range t.Secrets {
		if keepOld <= 0 || !s.validAt(now) {
			continue
		}
		if end := now.Add(keepOld); s.ExpiresAt == 0 || end < s.ExpiresAt {
			s.ExpiresAt = end
		}
		kept = append(kept, s)
	}
	if len(kept) >= MaxSecrets {
		return "", ErrTooManySecrets
	}
	secret = NewSecret(namespace)
	t.Secrets = append(kept, Secret{SHA256: sha256.Sum256([]byte(secret)), CreatedAt: now, ExpiresAt: expires})
	return secret, nil
}

// Valid returns how many secrets are valid at a ledger time, and when the last of them ends; 0: one does not expire. If
// none is valid, it is the time at which the last one ended.
func (t *Token) Valid(now flight.Time) (n int, ends flight.Time) {
	forever := false
	for i := range t.Secrets {
		s := &t.Secrets[i]
		if s.validAt(now) {
			n++
		}
		forever = forever || s.ExpiresAt == 0
		ends = max(ends, s.ExpiresAt) // those that have ended did so before the valid ones end
	}
	if forever {
		ends = 0
	}
	return n, ends
}
