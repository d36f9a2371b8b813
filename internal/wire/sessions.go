package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/flightd/flightd/flight"
)

// SessionRequest is the body of POST /v1/sessions.
type SessionRequest struct {
	TTLMS int64  `json:"ttl_ms,omitempty"`
	Owner string `json:"owner,omitempty"`
}

// RenewRequest is the body of POST /v1/sessions/{id}/renew. The answer lists the attempts that are open under the session
// where OpenDigest is there and is not theirs.
type RenewRequest struct {
	OpenDigest string `json:"open_digest,omitempty"` // OpenDigest of what the caller believes to be open
	After      string `json:"after,omitempty"`       // list from behind this flight on
}

// SessionAnswer is the answer to a session that was made or renewed.
type SessionAnswer struct {
	Session         string   `json:"session"`
	TrustMS         int64    `json:"trust_ms"` // counted from when the request was sent
	RenewEveryMS    int64    `json:"renew_every_ms"`
	CancelRequested []string `json:"cancel_requested,omitempty"` // ids of flights that somebody wants cancelled
	OpenDigest      string   `json:"open_digest"`                // OpenDigest of all attempts open under the session
	// Open lists the attempts open under the session, in the order of their flights' ids, where the digest sent differs.
	Open []OpenAttempt `json:"open,omitempty"`
	More bool          `json:"more,omitempty"` // some are left: renew again, with the last flight_id as after
}

// OpenAttempt is an attempt that is open under a session.
type OpenAttempt struct {
	Key          string `json:"key"`
	FlightID     string `json:"flight_id"`
	Nonce        string `json:"nonce"` // NonceHex of the one that the open carried
	Attempt      uint32 `json:"attempt"`
	FencingToken string `json:"fencing_token"`
}

// OpenDigest is the digest of the attempts that are open under a session: the first 16 bytes, in hex, of the SHA-256 of
// one line "<nonce> <attempt>\n" for each of them, sorted as text.
func OpenDigest(open []OpenAttempt) string {
	lines := make([]string, len(open))
	for i := range open {
		lines[i] = open[i].Nonce + " " + strconv.FormatUint(uint64(open[i].Attempt), 10) + "\n"
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:16])
}

// DecodeSession reads the body of a new session.
func DecodeSession(data []byte) (r SessionRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "ttl_ms":
			r.TTLMS = s.integer(0, maxMS)
		case "owner":
			r.Owner = s.str(maxWord)
		default:
			return false
		}
		return true
	})
	return r, bad
}

// DecodeRenew reads the body of a renewal.
func DecodeRenew(data []byte) (r RenewRequest, bad *Invalid) {
	bad = readObject(data, func(s *scanner, name []byte) bool {
		switch string(name) {
		case "open_digest":
			r.OpenDigest = s.str(maxWord)
		case "after":
			r.After = s.str(maxWord)
		default:
			return false
		}
		return true
	})
	if bad != nil {
		return r, bad
	}
	if digest, err := hex.DecodeString(r.OpenDigest); r.OpenDigest != "" && (err != nil || len(digest) != 16 || strings.ToLower(r.OpenDigest) != r.OpenDigest) {
		return r, BadField("/open_digest", "a digest of open attempts is 32 hex digits in lower case, as an earlier renewal gave it")
	}
	if _, err := flight.ParseID(r.After); r.After != "" && err != nil {
		return r, BadField("/after", "a flight's id is fl_ and 26 characters of a-z and 2-7")
	}
	return r, nil
}

// AppendJSON writes the answer.
func (a *SessionAnswer) AppendJSON(b []byte) []byte {
	w := writer{b}
	w.open()
	w.str("session", a.Session)
	w.int("trust_ms", a.TrustMS)
	w.int("renew_every_ms", a.RenewEveryMS)
	if len(a.CancelRequested) > 0 {
		w.name("cancel_requested")
		w.b = append(w.b, '[')
		for _, id := range a.CancelRequested {
			w.b = append(appendString(w.b, id), ',')
		}
		w.b[len(w.b)-1] = ']'
		w.b = append(w.b, ',')
	}
	w.str("open_digest", a.OpenDigest)
	list(&w, "open", a.Open, (*OpenAttempt).fill)
	w.optBool("more", a.More)
	w.close()
	return w.b
}

func (o *OpenAttempt) fill(w *writer) {
	w.str("key", o.Key)
	w.str("flight_id", o.FlightID)
	w.str("nonce", o.Nonce)
	w.int("attempt", int64(o.Attempt))
	w.str("fencing_token", o.FencingToken)
}
