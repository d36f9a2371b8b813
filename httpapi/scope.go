package httpapi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// This file keeps the namespaces apart. A caller whose token belongs to one namespace learns nothing about the keys of
// the others, not even whether they exist.

// missingDelay is how long after its arrival a request of a token of one namespace for an unknown flight is answered, at
// the earliest. A read of a stored record and a read that finds none take different times, which are far shorter.
const missingDelay = 5 * time.Millisecond

// namespace returns the namespace of a request: that of its token. If the token has all namespaces, or the server needs
// no credentials, it is the one in the header, or the default.
func namespace(r *http.Request) (string, *wire.Invalid) {
	bound := boundCaller(r)
	if len(r.Header[wire.HeaderNamespace]) == 0 {
		if bound != nil {
			return bound.Namespace, nil
		}
		return wire.DefaultNamespace, nil
	}
	named, bad := singleHeader(r, wire.HeaderNamespace)
	if bad == nil && bound != nil && named != bound.Namespace {
		return "", foreignNamespace(wire.FieldError{Header: wire.HeaderNamespace})
	}
	return named, bad
}

// foreignNamespace is the error for a request about another namespace than that of its token. It does not repeat what
// the request names.
func foreignNamespace(place wire.FieldError) *wire.Invalid {
	place.Detail = "the token belongs to another namespace"
	return &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of that namespace, or of all namespaces", FieldError: place}
}

// allowKey rejects a key of another namespace than that of the token, whether the key is used or not. place is where the
// request names the key.
func allowKey(r *http.Request, key flight.Key, place wire.FieldError) *wire.Invalid {
	if c := boundCaller(r); c != nil && key.Namespace() != c.Namespace {
		return foreignNamespace(place)
	}
	return nil
}

// allowNamespace rejects another namespace than that of the token.
func allowNamespace(r *http.Request, name string, place wire.FieldError) *wire.Invalid {
	if c := callerOf(r); c != nil && !c.Covers(name) {
		return foreignNamespace(place)
	}
	return nil
}

// flightOf returns a flight as the sender of a request may see it, or nil if it does not exist, or if it belongs to another
// namespace than the token. The record of a tombstone has no key, so a token of one namespace sees it only if the request
// names its key. Only provedTombstone reads flights otherwise.
func (sc *scope) flightOf(r *http.Request, id flight.ID, named flight.Key) (*flight.Flight, error) {
	f, err := sc.ledger.Flight(id)
	if f == nil || err != nil {
		return nil, err
	}
	c := boundCaller(r)
	if c == nil {
		return f, nil
	}
	key := f.Key
	if key.IsZero() && !named.IsZero() && named.FlightID() == id {
		key = named
	}
	if key.IsZero() || key.Namespace() != c.Namespace {
		return nil, nil
	}
	return f, nil
}

// keyOf returns the key of a flight; the zero key if this node does not know it.
func (sc *scope) keyOf(r *http.Request, id flight.ID) flight.Key {
	if f, err := sc.flightOf(r, id, flight.Key{}); err == nil && f != nil {
		return f.Key
	}
	return flight.Key{}
}

// provedTombstone returns a tombstone to a caller that proves by a fencing token that it held an attempt of the flight.
// It returns nil, and reads nothing, without that proof; also nil if the flight is no tombstone.
func (sc *scope) provedTombstone(id flight.ID, fencingToken string) *flight.Flight {
	if _, _, err := flight.Unseal(fencingToken, sc.ledger.Header().Secret, id); err != nil {
		return nil
	}
	f, err := sc.ledger.Flight(id)
	if err != nil || f == nil || f.State != flight.StateExpired || !f.Key.IsZero() {
		return nil
	}
	return f
}

// hideMissing makes the problem for an unknown flight the same as for a flight of another namespace, also by its time.
func hideMissing(r *http.Request, p *wire.Problem, err error) {
	c := boundCaller(r)
	if c == nil || !errors.As(err, new(*effect.Missing)) {
		return
	}
	p.Detail = "the namespace of the token has no such flight: its key was never used, was freed, or has expired"
	p.Hint = "find an expired flight by its key: GET /v1/flights?key=NAMESPACE/ACTION/ID"
	rest := time.NewTimer(missingDelay - time.Since(c.arrived))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-r.Context().Done():
	}
}

// keyedHash is HMAC-SHA256 of the parts under the secret of the deployment. The first part names the purpose; no part
// contains a zero byte.
func (sc *scope) keyedHash(parts ...string) []byte {
	mac := hmac.New(sha256.New, sc.ledger.Header().Secret)
	mac.Write([]byte(strings.Join(parts, "\x00")))
	return mac.Sum(nil)
}

// sessionSeparator is between the id of a session and its seal. No id contains it.
const sessionSeparator = "~"

// unknownSession is the id of no session.
const unknownSession = flight.SessionID(sessionSeparator)

// sealSession returns the id of a session for the sender of a request. The seal binds the session to the namespace and
// the name of the token, not to its secret: a new secret of the same name continues the session. The ledger and etcd
// store the id only. Without credentials there is no seal.
func (sc *scope) sealSession(r *http.Request, id flight.SessionID) string {
	c := callerOf(r)
	if c == nil || id == "" {
		return string(id)
	}
	return string(id) + sessionSeparator + sc.sessionSeal(c, string(id))
}

func (sc *scope) sessionSeal(c *caller, id string) string {
	return base64.RawURLEncoding.EncodeToString(sc.keyedHash("session", c.Namespace, c.Name, id)[:16])
}

// unsealSession returns the id of the session that a request names; unknownSession if it was not sealed for the sender.
func (sc *scope) unsealSession(r *http.Request, sealed string) flight.SessionID {
	c := callerOf(r)
	if c == nil || sealed == "" {
		return flight.SessionID(sealed)
	}
	id, seal, _ := strings.Cut(sealed, sessionSeparator)
	if !hmac.Equal([]byte(seal), []byte(sc.sessionSeal(c, id))) {
		return unknownSession
	}
	return flight.SessionID(id)
}

// sealCursor returns the text of a cursor. A page can end at a flight of another namespace, so for a token of one
// namespace the cursor is encrypted, and only this namespace can use it.
func (sc *scope) sealCursor(r *http.Request, plain []byte) string {
	if c := boundCaller(r); c != nil {
		box := sc.cursorCipher(c)
		nonce := make([]byte, box.NonceSize())
		_, _ = rand.Read(nonce) // never fails: crypto/rand crashes the program instead
		plain = box.Seal(nonce, nonce, plain, nil)
	}
	return base64.RawURLEncoding.EncodeToString(plain)
}

// unsealCursor returns the content of a cursor, or nil if it is not a cursor for the sender of the request.
func (sc *scope) unsealCursor(r *http.Request, text string) []byte {
	b, err := base64.RawURLEncoding.DecodeString(text)
	c := boundCaller(r)
	if err != nil || c == nil {
		return b
	}
	box := sc.cursorCipher(c)
	if len(b) < box.NonceSize() {
		return nil
	}
	plain, err := box.Open(nil, b[:box.NonceSize()], b[box.NonceSize():], nil)
	if err != nil {
		return nil
	}
	return plain
}

func (sc *scope) cursorCipher(c *caller) cipher.AEAD {
	block, _ := aes.NewCipher(sc.keyedHash("cursor", c.Namespace)) // the key has a valid length
	box, _ := cipher.NewGCM(block)
	return box
}
