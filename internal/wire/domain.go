package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
)

// Bounds of what a caller may declare.
const (
	MinTTL       = 2 * time.Second
	MaxTTL       = 10 * time.Minute
	MaxDuration  = 366 * 24 * time.Hour // of time-outs, delays and windows
	MinRetention = time.Second
	MaxRetention = 10 * 366 * 24 * time.Hour
	// MaxLedgerTime is the greatest ledger time that every JSON parser reads exactly.
	MaxLedgerTime = int64(1)<<53 - 1
)

// Key joins the parts of a key. A part that is missing is KeyRequired, one that cannot be is KeyInvalid.
func Key(namespace, action, id string) (flight.Key, *Invalid) {
	missing := func(pointer string) *Invalid {
		return &Invalid{Code: KeyRequired, FieldError: FieldError{Pointer: pointer, Detail: "it is missing"}}
	}
	switch {
	case action == "":
		return flight.Key{}, missing("/action")
	case id == "":
		return flight.Key{}, missing("/id")
	}
	k, err := flight.NewKey(namespace, action, id)
	if err != nil {
		return flight.Key{}, keyInvalid(err)
	}
	return k, nil
}

// Listed is the namespace of which a caller wants a list, "" for all of them, and checks the beginning of the keys that
// may be wanted of it: one that no such key has would be answered as if nothing had ever happened.
func Listed(namespace, prefix string) (string, *Invalid) {
	if namespace == AllNamespaces {
		return "", nil
	}
	if _, err := flight.NewKey(namespace, "name", "id"); err != nil {
		return "", keyInvalid(err)
	}
	if begin := namespace + "/"; !strings.HasPrefix(begin, prefix) && !strings.HasPrefix(prefix, begin) {
		return "", BadParameter("key_prefix", "no key of namespace %s begins so; the full key begins with its namespace, and %q asks for all of them", namespace, AllNamespaces)
	}
	return namespace, nil
}

// ParseKey reads a full key that stands in a field, or in a parameter of the query: bad is about that.
func ParseKey(s string, bad *Invalid) (flight.Key, *Invalid) {
	key, err := flight.ParseKey(s)
	if err == nil {
		return key, nil
	}
	var e *flight.InvalidError
	switch bad.Code, bad.Detail = KeyInvalid, err.Error(); {
	case !errors.As(err, &e):
	case e.Field == "key": // which the place says already
		bad.Detail = e.Detail
	default:
		bad.Detail = e.Field + ": " + e.Detail
	}
	return key, bad
}

func keyInvalid(err error) *Invalid {
	bad := &Invalid{Code: KeyInvalid, FieldError: FieldError{Detail: err.Error()}}
	var e *flight.InvalidError
	if errors.As(err, &e) {
		bad.Detail = e.Detail
		switch e.Field {
		case "namespace":
			bad.Header = HeaderNamespace
		case "name":
			bad.Pointer = "/action"
		default:
			bad.Pointer = "/" + e.Field
		}
	}
	return bad
}

// NonceOf gives the nonce that a caller's string stands for.
func NonceOf(s string) flight.Nonce {
	sum := sha256.Sum256([]byte(s))
	return flight.Nonce(sum[:16])
}

// NonceHex is the nonce that a caller's string stands for, as a renewal lists it.
func NonceHex(s string) string {
	n := NonceOf(s)
	return hex.EncodeToString(n[:])
}

// Submission is what the request submits. The input is a copy, so that it does not hold on to the request's body.
func (r *OpenRequest) Submission() (flight.Submission, *Invalid) {
	s := flight.Submission{}
	var bad *Invalid
	if s.Policy, bad = r.Policy.Flight(); bad != nil {
		return s, bad
	}
	if len(r.Input) > flight.MaxInput {
		return s, &Invalid{Code: PayloadTooLarge, FieldError: FieldError{Pointer: "/input",
			Detail: "it is longer than 256 KiB"}}
	}
	if s.Fingerprint, bad = r.fingerprint(); bad != nil {
		return s, bad
	}
	if r.Input != nil {
		s.Input = flight.NewBlob(TypeJSON, append([]byte(nil), r.Input...), flight.MaxInput)
	}
	return s, nil
}

// fingerprint is the one given, or that of the input; no input is an input, too. Whoever took the fingerprint of its
// input has read the input; otherwise it is held against RFC 7493 here.
func (r *OpenRequest) fingerprint() (flight.Fingerprint, *Invalid) {
	switch {
	case r.Fingerprint == "none" && r.Input != nil:
		if _, err := flight.CanonicalJSON(r.Input); err != nil {
			return flight.NoFingerprint, inputInvalid(err)
		}
		return flight.NoFingerprint, nil
	case r.Fingerprint == "none":
		return flight.NoFingerprint, nil
	case r.Fingerprint != "":
		d, ok := ParseDigest(r.Fingerprint)
		if !ok || d.IsZero() {
			return flight.NoFingerprint, BadField("/fingerprint", `a fingerprint is "none", or "sha256:" and 64 hex digits`)
		}
		return flight.Fingerprint(d), nil
	case r.Input == nil:
		return flight.FingerprintBytes(nil), nil
	}
	fp, err := flight.FingerprintJSON(r.Input, nil)
	if err != nil {
		return fp, inputInvalid(err)
	}
	return fp, nil
}

func inputInvalid(err error) *Invalid {
	bad := BadField("/input", "%v", err)
	var e *flight.InvalidError
	if errors.As(err, &e) {
		bad.Detail = e.Detail
	}
	return withHint(bad, "an input is JSON by RFC 7493: unique names, valid Unicode, and numbers that a double holds exactly; send others as strings")
}

// ParseDigest reads sha256: and hex.
func ParseDigest(s string) (d flight.Digest, ok bool) {
	digits, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(digits) != 2*len(d) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(digits))
	return d, err == nil
}

// Flight is the policy as the ledger keeps it.
func (p *Policy) Flight() (flight.Policy, *Invalid) {
	var f flight.Policy
	var bad *Invalid
	keep := func(to *time.Duration, pointer string, ms int64) {
		if d := time.Duration(ms) * time.Millisecond; d <= MaxDuration {
			*to = d
		} else if bad == nil {
			bad = BadField(pointer, "at most %d are allowed (a year)", MaxDuration.Milliseconds())
		}
	}
	keep(&f.AttemptTimeout, "/attempt_timeout_ms", p.AttemptTimeoutMS)
	keep(&f.SettleDelay, "/settle_ms", p.SettleMS)
	keep(&f.ProviderWindow, "/provider_window_ms", p.ProviderWindowMS)
	if bad != nil {
		return f, bad
	}
	f.Lookup, f.LookTries = p.Lookup, int(p.LookTries)
	if p.Recovery != "" {
		r, err := flight.ParseRecovery(p.Recovery)
		if err != nil {
			return f, BadField("/recovery", "a recovery is hold, resend or verify")
		}
		f.Recovery = r
	}
	if p.Retention != "" {
		d, err := ParseRetention(p.Retention)
		if err != nil {
			return f, BadField("/retention", "%v", err)
		}
		f.Retention = d
	}
	return f, nil
}

// PolicyOf writes a policy for the wire.
func PolicyOf(f flight.Policy) Policy {
	p := Policy{
		AttemptTimeoutMS: f.AttemptTimeout.Milliseconds(), SettleMS: f.SettleDelay.Milliseconds(),
		ProviderWindowMS: f.ProviderWindow.Milliseconds(), Recovery: f.Recovery.String(),
		Lookup: f.Lookup, LookTries: int64(f.LookTries),
	}
	if f.Retention > 0 {
		p.Retention = FormatRetention(f.Retention)
	}
	return p
}

const day = 24 * time.Hour

// ParseRetention reads a duration with units up to days: "30d", "12h", "1d12h".
func ParseRetention(s string) (time.Duration, error) {
	bad := errors.New(`a retention reads like "30d" or "12h", from 1s to 3660d`)
	days, rest, found := strings.Cut(s, "d")
	var d time.Duration
	if found {
		n := int64(0)
		for _, c := range []byte(days) {
			if c < '0' || c > '9' || n > 4000 {
				return 0, bad
			}
			n = 10*n + int64(c-'0')
		}
		if days == "" || n > 4000 {
			return 0, bad
		}
		d = time.Duration(n) * day
	} else {
		rest = s
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || more > MaxRetention {
			return 0, bad
		}
		d += more
	}
	if d < MinRetention || d > MaxRetention {
		return 0, bad
	}
	return d, nil
}

// FormatRetention writes what ParseRetention reads.
func FormatRetention(d time.Duration) string {
	days, rest := d/day, d%day
	if days == 0 {
		return rest.String()
	}
	s := (time.Duration(days) * time.Hour).String() // "30h0m0s"
	s = s[:strings.IndexByte(s, 'h')] + "d"
	if rest > 0 {
		s += rest.String()
	}
	return s
}

// TTL checks the length of a session's life; 0 stands for the default.
func TTL(ms int64) (time.Duration, *Invalid) {
	d := time.Duration(ms) * time.Millisecond
	if ms != 0 && (d < MinTTL || d > MaxTTL || d%time.Second != 0) {
		return 0, BadField("/ttl_ms", "whole seconds from %d to %d are allowed", MinTTL.Milliseconds(), MaxTTL.Milliseconds())
	}
	return d, nil
}

// Wait is how long to wait; nil stands for the default.
func Wait(ms *int64) time.Duration {
	if ms == nil {
		return DefaultWaitMS * time.Millisecond
	}
	return time.Duration(*ms) * time.Millisecond
}

// Blob is the body as the ledger keeps it: at most flight.MaxReceiptBody bytes, with the digest and the length of all.
func (b *Body) Blob() (flight.Blob, *Invalid) {
	kind, data := b.ContentType, b.Base64
	switch {
	case len(b.ExternalID) > flight.MaxText: // it is always kept whole, so what is longer cannot be kept
		return flight.Blob{}, BadField("/external_id", "it has %d bytes; at most %d are kept, longer ones belong in the body", len(b.ExternalID), flight.MaxText)
	case b.JSON != nil && b.Base64 != nil:
		return flight.Blob{}, BadField("/body_base64", "there is a body already; send one of the two")
	case b.JSON != nil && kind == "":
		kind, data = TypeJSON, append([]byte(nil), b.JSON...)
	case b.JSON != nil && IsJSONType(kind):
		data = append([]byte(nil), b.JSON...)
	case b.JSON != nil:
		return flight.Blob{}, BadField("/content_type", "body is JSON; send anything else as body_base64")
	}
	if !headerSafe(kind) {
		return flight.Blob{}, BadField("/content_type", "a content type is printable ASCII of at most 255 bytes")
	}
	if b.Truncated {
		return b.shortened(kind)
	}
	if b.Size != 0 || b.Digest != "" {
		return flight.Blob{}, BadField("/truncated", "size and digest belong to a body that was shortened")
	}
	return flight.NewBlob(kind, data, flight.MaxReceiptBody), nil
}

// shortened is a body of which the caller sent only the beginning.
func (b *Body) shortened(kind string) (flight.Blob, *Invalid) {
	digest, ok := ParseDigest(b.Digest)
	switch {
	case b.Base64 == nil:
		return flight.Blob{}, BadField("/body_base64", "of a body that was shortened the beginning is sent as base64")
	case b.Size <= int64(len(b.Base64)):
		return flight.Blob{}, BadField("/size", "the full length in bytes is more than the %d that were sent", len(b.Base64))
	case !ok || digest.IsZero():
		return flight.Blob{}, BadField("/digest", `the digest over the whole body reads "sha256:" and 64 hex digits`)
	}
	blob := flight.NewBlob(kind, b.Base64, flight.MaxReceiptBody)
	blob.Size, blob.Digest = int(b.Size), digest
	return blob, nil
}

// BodyOf writes what an effect left behind. A body that is longer than is kept goes out shortened, so that no report
// is too large to be sent.
func BodyOf(externalID, contentType string, data []byte) Body {
	if !headerSafe(contentType) {
		contentType = "application/octet-stream"
	}
	blob := flight.NewBlob(contentType, data, flight.MaxReceiptBody)
	b := Body{ExternalID: externalID, ContentType: contentType}
	switch {
	case blob.Truncated():
		b.Base64, b.Truncated, b.Size, b.Digest = blob.Data, true, int64(blob.Size), blob.Digest.String()
	case IsJSONType(contentType) && ValidJSON(data):
		b.JSON = data
		if contentType == TypeJSON {
			b.ContentType = ""
		}
	case len(data) > 0 || contentType != "":
		b.Base64 = append([]byte{}, data...)
	}
	return b
}

func headerSafe(s string) bool {
	if len(s) > 255 {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ParseOutcome reads the outcome of a report.
func ParseOutcome(word string) (flight.Outcome, *Invalid) {
	o, err := flight.ParseOutcome(word)
	if err != nil {
		return o, BadField("/outcome", "an outcome is succeeded, refused, not_done or unknown")
	}
	return o, nil
}

// ParseVerdict reads the result of a look-up.
func ParseVerdict(word string) (flight.Verb, *Invalid) {
	switch word {
	case ResultHappened:
		return flight.Happened, nil
	case ResultNotHappened:
		return flight.DidNotHappen, nil
	case ResultUnknown:
		return flight.NoVerb, nil
	}
	return flight.NoVerb, BadField("/result", "the result of a look-up is happened, not_happened or unknown")
}

// ParseResolution reads what a person decided about a doubt.
func ParseResolution(word string) (flight.Verb, *Invalid) {
	switch word {
	case ResultHappened:
		return flight.Happened, nil
	case ResultNotHappened:
		return flight.DidNotHappen, nil
	case ResultFail:
		return flight.Fail, nil
	}
	return flight.NoVerb, BadField("/result", "a doubt is settled by happened, not_happened or fail")
}
