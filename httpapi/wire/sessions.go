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
	TTLMS int64  `json:"ttl_ms,omitzero" limit:"ms"`
	Owner string `json:"owner,omitzero" limit:"word"`
	Nonce string `json:"nonce,omitzero" limit:"nonce"` // names the request in its answer
}

// RenewRequest is the body of POST /v1/sessions/{id}/renew. The answer lists the attempts that are open under the
// session if OpenDigest is not empty and is not their digest.
type RenewRequest struct {
	OpenDigest string `json:"open_digest,omitzero" limit:"word"` // OpenDigest of the attempts that the caller knows to be open
	After      string `json:"after,omitzero" limit:"word"`       // list only flights after this one
}

// SessionAnswer is the answer to the creation or the renewal of a session.
type SessionAnswer struct {
	Session         string   `json:"session"`
	Nonce           string   `json:"nonce,omitzero"` // of the request that created the session
	TrustMS         int64    `json:"trust_ms"`       // counted from when the request was sent
	RenewEveryMS    int64    `json:"renew_every_ms"`
	CancelRequested []string `json:"cancel_requested,omitempty"` // ids of flights for which a cancel was requested
	OpenDigest      string   `json:"open_digest"`                // OpenDigest of all attempts open under the session
	// Open lists the attempts open under the session, ordered by flight id, if the digest in the request differs.
	Open []OpenAttempt `json:"open,omitempty"`
	More bool          `json:"more,omitzero"` // the list is not complete: renew again with the last flight_id as after
}

// OpenAttempt is an attempt that is open under a session.
type OpenAttempt struct {
	Key          string `json:"key"`
	FlightID     string `json:"flight_id"`
	Nonce        string `json:"nonce"` // NonceHex of the nonce in the open
	Attempt      uint32 `json:"attempt"`
	FencingToken string `json:"fencing_token"`
}

// OpenDigest returns the digest of the attempts that are open under a session: the first 16 bytes, in hex, of the
// SHA-256 of one line "<nonce> <attempt>\n" for each attempt, sorted as text.
func OpenDigest(open []OpenAttempt) string {
	lines := make([]string, len(open))
	for i := range open {
		lines[i] = open[i].Nonce + " " + strconv.FormatUint(uint64(open[i].Attempt), 10) + "\n"
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:16])
}

// normalize rejects an invalid digest or flight id.
func (r *RenewRequest) normalize() *Invalid {
	if digest, err := hex.DecodeString(r.OpenDigest); r.OpenDigest != "" && (err != nil || len(digest) != 16 || strings.ToLower(r.OpenDigest) != r.OpenDigest) {
		return BadField("/open_digest", "must be 32 lower-case hex digits: open_digest in the answer to an earlier renewal")
	}
	if _, err := flight.ParseID(r.After); r.After != "" && err != nil {
		return BadField("/after", "must be a flight id: fl_ followed by 26 characters of a-z and 2-7")
	}
	return nil
}
