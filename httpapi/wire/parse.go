package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
)

// Bounds of the durations and times that a caller may declare.
const (
	MinTTL       = 2 * time.Second
	MaxTTL       = 10 * time.Minute
	MaxDuration  = 366 * 24 * time.Hour // of timeouts, delays and windows
	MinRetention = time.Second
	MaxRetention = 10 * 366 * 24 * time.Hour
	// MaxLedgerTime is the greatest ledger time that every JSON parser reads exactly.
	MaxLedgerTime = int64(1)<<53 - 1
)

// LateUndoPrefix is the prefix of the ids of jobs that undo a late success of a saga's step. Only flightd creates such jobs.
const LateUndoPrefix = "undo-late:"

// Key joins the parts of a caller's key for new work. The code of the error is KeyRequired for a missing part and KeyInvalid for an
// invalid one. Key rejects LateUndoPrefix: a flight of a caller under the key of an undo would prevent the undo and look as if it was
// done.
func Key(namespace, action, id string) (flight.Key, *Invalid) {
	if strings.HasPrefix(id, LateUndoPrefix) {
		return flight.Key{}, &Invalid{Code: KeyInvalid, FieldError: FieldError{Pointer: "/id", Detail: "only flightd makes ids that begin with " + LateUndoPrefix}, Hint: "use another id"}
	}
	return joinKey(namespace, action, id)
}

func joinKey(namespace, action, id string) (flight.Key, *Invalid) {
	missing := func(pointer string) *Invalid {
		return &Invalid{Code: KeyRequired, FieldError: FieldError{Pointer: pointer, Detail: "missing"}}
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

// KeyOrStep joins the parts of the key of an open attempt. The id may be one of a saga's step, ID#STEP, or of a job that flightd created.
func KeyOrStep(namespace, action, id string) (flight.Key, *Invalid) {
	id, step, isStep := strings.Cut(id, "#")
	k, bad := joinKey(namespace, action, id)
	if bad != nil || !isStep {
		return k, bad
	}
	k, err := k.Step(step)
	if err != nil {
		return flight.Key{}, keyInvalid(err)
	}
	return k, nil
}

// IDOf is the id of a key as KeyOrStep reads it.
func IDOf(key flight.Key) string {
	if key.IsStep() {
		return key.BusinessID() + "#" + key.StepName()
	}
	return key.BusinessID()
}

// ParseListNamespace returns the namespace that a caller lists, "" for all of them. It rejects a key prefix that no key of the
// namespace can have, because the empty list would look as if no flight existed.
func ParseListNamespace(namespace, prefix string) (string, *Invalid) {
	if namespace == AllNamespaces {
		return "", nil
	}
	if _, err := flight.NewKey(namespace, "name", "id"); err != nil {
		return "", keyInvalid(err)
	}
	if begin := namespace + "/"; !strings.HasPrefix(begin, prefix) && !strings.HasPrefix(prefix, begin) {
		return "", BadParameter("key_prefix", "no key in namespace %s has this prefix, because a full key starts with its namespace; namespace %q selects all", namespace, AllNamespaces)
	}
	return namespace, nil
}

// ParseKey reads the full key of a flight that may exist already, so it accepts what flight.ParseStoredKey accepts. bad
// names the field or the query parameter that has it, and is returned if the key is invalid.
func ParseKey(s string, bad *Invalid) (flight.Key, *Invalid) {
	key, err := flight.ParseStoredKey(s)
	return explainKey(key, err, bad)
}

func explainKey(key flight.Key, err error, bad *Invalid) (flight.Key, *Invalid) {
	if err == nil {
		return key, nil
	}
	var e *flight.InvalidError
	switch bad.Code, bad.Detail = KeyInvalid, err.Error(); {
	case !errors.As(err, &e):
	case e.Field == "key": // bad names that place already
		bad.Detail = e.Detail
	default:
		bad.Detail = e.Field + ": " + e.Detail
	}
	return key, bad
}

func keyInvalid(err error) *Invalid {
	bad := &Invalid{Code: KeyInvalid, FieldError: FieldError{Detail: err.Error()}}
	if e, ok := errors.AsType[*flight.InvalidError](err); ok {
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

// NonceOf returns the nonce of a caller's string.
func NonceOf(s string) flight.Nonce {
	sum := sha256.Sum256([]byte(s))
	return flight.Nonce(sum[:16])
}

// NonceHex returns the nonce of a caller's string as a renewal lists it.
func NonceHex(s string) string {
	n := NonceOf(s)
	return hex.EncodeToString(n[:])
}

// Open is a parsed OpenRequest, without its session and its owner.
type Open struct {
	Key        flight.Key
	Submission flight.Submission // shares the input with the request
	Opening
}

// Opening is how an attempt is to be opened: by an open, or by a verification that found no effect.
type Opening struct {
	Nonce    flight.Nonce
	NoNonce  bool // the request has no nonce, and Nonce is zero
	NotAfter flight.Time
	TTL      time.Duration // of a session that is created; 0: the default
	Wait     time.Duration
}

// Parse returns the request in the terms of package flight. After an error the key is set if it is valid.
func (r *OpenRequest) Parse(namespace string) (o Open, bad *Invalid) {
	if o.Key, bad = Key(namespace, r.Action, r.ID); bad != nil {
		return o, bad
	}
	if o.Submission, bad = r.submission(); bad != nil {
		return o, bad
	}
	o.Opening, bad = parseOpening(r.Nonce, r.NotAfter, r.TTLMS, r.WaitMS)
	return o, bad
}

// Opening returns how the verification opens an attempt if the effect did not happen.
func (r *VerificationRequest) Opening() (Opening, *Invalid) {
	return parseOpening(r.Nonce, r.NotAfter, r.TTLMS, r.WaitMS)
}

func parseOpening(nonce string, notAfter, ttlMS int64, waitMS *int64) (o Opening, bad *Invalid) {
	if o.TTL, bad = TTL(ttlMS); bad != nil {
		return o, bad
	}
	o.Wait, o.NotAfter = Wait(waitMS), flight.Time(notAfter)
	if o.NoNonce = nonce == ""; !o.NoNonce {
		o.Nonce = NonceOf(nonce)
	} else if notAfter != 0 {
		bad = setHint(BadField("/not_after", "not_after is allowed only with a nonce"), "send a random nonce, new for each open, or remove not_after")
	}
	return o, bad
}

// Until returns the ledger time until which the attempt waits for its callback; now is the ledger's time.
func (r *SuspendRequest) Until(now flight.Time) (until flight.Time, bad *Invalid) {
	pointer := "/deadline"
	switch until = flight.Time(r.Deadline); {
	case r.Deadline != 0 && r.DeadlineMS != 0:
		return 0, BadField("/deadline", "not allowed together with deadline_ms")
	case r.Deadline == 0 && r.DeadlineMS == 0:
		return 0, BadField("/deadline_ms", "missing; send how long the attempt waits for its callback")
	case r.Deadline == 0:
		pointer, until = "/deadline_ms", now+flight.Time(r.DeadlineMS)
	}
	if until <= now || until > now.Add(MaxDuration) {
		return 0, BadField(pointer, "the callback must have time, at most %d ms (a year); the ledger's time is %d", MaxDuration.Milliseconds(), int64(now))
	}
	return until, nil
}

func (r *OpenRequest) submission() (flight.Submission, *Invalid) {
	s := flight.Submission{}
	var bad *Invalid
	if s.Policy, bad = r.Policy.Flight(); bad != nil {
		return s, bad
	}
	if len(r.Input) > flight.MaxInput {
		return s, &Invalid{Code: PayloadTooLarge, FieldError: FieldError{Pointer: "/input",
			Detail: "longer than 256 KiB"}}
	}
	if s.Fingerprint, bad = r.fingerprint(); bad != nil {
		return s, bad
	}
	if r.Input != nil {
		s.Input = flight.NewBlob(TypeJSON, r.Input, flight.MaxInput)
	}
	return s, nil
}

// fingerprint returns the fingerprint of the request, or computes it from the input, which may be missing. In both cases the input must
// follow RFC 7493, because workers in other languages read it.
func (r *OpenRequest) fingerprint() (flight.Fingerprint, *Invalid) {
	if r.Fingerprint != "" && r.Input != nil {
		if _, err := flight.CanonicalJSON(r.Input); err != nil {
			return flight.NoFingerprint, inputInvalid(err)
		}
	}
	switch {
	case r.Fingerprint == "none":
		return flight.NoFingerprint, nil
	case r.Fingerprint != "":
		d, ok := ParseDigest(r.Fingerprint)
		if !ok || d.IsZero() {
			return flight.NoFingerprint, BadField("/fingerprint", `must be "none", or "sha256:" and 64 hex digits`)
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
	if e, ok := errors.AsType[*flight.InvalidError](err); ok {
		bad.Detail = e.Detail
	}
	return setHint(bad, "an input is JSON by RFC 7493: unique names, valid Unicode, and numbers that a double holds exactly; send others as strings")
}

// ParseDigest reads "sha256:" and 64 hex digits.
func ParseDigest(s string) (d flight.Digest, ok bool) {
	digits, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(digits) != 2*len(d) {
		return d, false
	}
	_, err := hex.Decode(d[:], []byte(digits))
	return d, err == nil
}

// Flight returns the policy as the ledger stores it.
func (p *Policy) Flight() (flight.Policy, *Invalid) {
	var f flight.Policy
	var bad *Invalid
	setDuration := func(to *time.Duration, pointer string, ms int64) {
		if d := time.Duration(ms) * time.Millisecond; d <= MaxDuration {
			*to = d
		} else if bad == nil {
			bad = BadField(pointer, "must be at most %d (a year)", MaxDuration.Milliseconds())
		}
	}
	setDuration(&f.AttemptTimeout, "/attempt_timeout_ms", p.AttemptTimeoutMS)
	setDuration(&f.SettleDelay, "/settle_ms", p.SettleMS)
	setDuration(&f.ProviderWindow, "/provider_window_ms", p.ProviderWindowMS)
	if f.Approval = p.Approval != nil; f.Approval {
		setDuration(&f.ApprovalWithin, "/approval/expires_ms", p.Approval.ExpiresMS)
	}
	if bad != nil {
		return f, bad
	}
	f.Lookup, f.VerifyAttempts = p.Lookup, int(p.VerifyAttempts)
	if p.Recovery != "" {
		r, err := flight.ParseRecovery(p.Recovery)
		if err != nil {
			return f, BadField("/recovery", "must be hold, resend or verify")
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

// PolicyOf converts a policy.
func PolicyOf(f flight.Policy) Policy {
	p := Policy{
		AttemptTimeoutMS: f.AttemptTimeout.Milliseconds(), SettleMS: f.SettleDelay.Milliseconds(),
		ProviderWindowMS: f.ProviderWindow.Milliseconds(), Recovery: f.Recovery.String(),
		Lookup: f.Lookup, VerifyAttempts: int64(f.VerifyAttempts),
	}
	if f.Retention > 0 {
		p.Retention = FormatRetention(f.Retention)
	}
	if f.Approval {
		p.Approval = &Approval{ExpiresMS: f.ApprovalWithin.Milliseconds()}
	}
	return p
}

const oneDay = 24 * time.Hour

// ErrNotDuration is returned for a text that is not a duration.
var ErrNotDuration = errors.New("is not a duration such as 30s, 24h or 7d")

// ParseDuration reads a duration of package time, also after a number of days: 500ms, 24h, 30d, 1d12h. Its error wraps
// ErrNotDuration.
func ParseDuration(s string) (time.Duration, error) {
	days, rest, found := strings.Cut(s, "d")
	switch {
	case !found:
		days, rest = "0", s
	case rest == "":
		rest = "0"
	}
	n, err1 := strconv.ParseUint(days, 10, 16)
	d, err2 := time.ParseDuration(rest)
	sum := time.Duration(n)*oneDay + d
	if err1 != nil || err2 != nil || found && d < 0 || sum < d {
		return 0, fmt.Errorf("%q %w", s, ErrNotDuration)
	}
	return sum, nil
}

// ParseRetention reads a duration from MinRetention to MaxRetention.
func ParseRetention(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err != nil || d < MinRetention || d > MaxRetention {
		return 0, errors.New(`a retention is like "30d" or "12h", from 1s to 3660d`)
	}
	return d, nil
}

// FormatDuration returns the shortest form of a duration: 24h, not 24h0m0s.
func FormatDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range [...]string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// FormatRetention formats a duration for ParseRetention.
func FormatRetention(d time.Duration) string {
	days, rest := d/oneDay, d%oneDay
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

// TTL returns the time to live of a session; 0 means the default.
func TTL(ms int64) (time.Duration, *Invalid) {
	d := time.Duration(ms) * time.Millisecond
	if ms != 0 && (d < MinTTL || d > MaxTTL || d%time.Second != 0) {
		return 0, BadField("/ttl_ms", "must be whole seconds, from %d to %d", MinTTL.Milliseconds(), MaxTTL.Milliseconds())
	}
	return d, nil
}

// Wait returns the time to wait; nil means the default.
func Wait(ms *int64) time.Duration {
	if ms == nil {
		return DefaultWaitMS * time.Millisecond
	}
	return time.Duration(*ms) * time.Millisecond
}

// Blob returns the body as the ledger stores it: at most flight.MaxReceiptBody bytes, with the digest and the length
// of the whole body. It shares its bytes with b.
func (b *Body) Blob() (flight.Blob, *Invalid) {
	kind, data := b.ContentType, b.Base64
	switch {
	case len(b.ExternalID) > flight.MaxText: // it is always kept whole, so what is longer cannot be kept
		return flight.Blob{}, BadField("/external_id", "has %d bytes; the limit is %d, send longer ids in the body", len(b.ExternalID), flight.MaxText)
	case b.JSON != nil && b.Base64 != nil:
		return flight.Blob{}, BadField("/body_base64", "not allowed together with body")
	case b.JSON != nil && kind == "":
		kind, data = TypeJSON, b.JSON
	case b.JSON != nil && IsJSONType(kind):
		data = b.JSON
	case b.JSON != nil:
		return flight.Blob{}, BadField("/content_type", "must be JSON with body; send other types as body_base64")
	}
	if !isHeaderValue(kind) {
		return flight.Blob{}, BadField("/content_type", "must be printable ASCII of at most 255 bytes")
	}
	if b.Truncated {
		return b.truncatedBlob(kind)
	}
	if b.Size != 0 || b.Digest != "" {
		return flight.Blob{}, BadField("/truncated", "must be true if size or digest is set")
	}
	return flight.NewBlob(kind, data, flight.MaxReceiptBody), nil
}

// truncatedBlob returns the blob of a body of which the caller sent only the beginning.
func (b *Body) truncatedBlob(kind string) (flight.Blob, *Invalid) {
	digest, ok := ParseDigest(b.Digest)
	switch {
	case b.Base64 == nil:
		return flight.Blob{}, BadField("/body_base64", "missing; send the beginning of a truncated body as base64")
	case b.Size <= int64(len(b.Base64)):
		return flight.Blob{}, BadField("/size", "must be the length of the whole body, more than the %d bytes sent", len(b.Base64))
	case !ok || digest.IsZero():
		return flight.Blob{}, BadField("/digest", `must be the digest of the whole body: "sha256:" and 64 hex digits`)
	}
	blob := flight.NewBlob(kind, b.Base64, flight.MaxReceiptBody)
	blob.Size, blob.Digest = int(b.Size), digest
	return blob, nil
}

// BodyOf returns the body of a report about an effect. A body that is longer than the ledger stores is truncated, so
// that no report is too large to be sent.
func BodyOf(externalID, contentType string, data []byte) Body {
	if !isHeaderValue(contentType) {
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

func isHeaderValue(s string) bool {
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
		return o, BadField("/outcome", "must be succeeded, refused, not_done or unknown")
	}
	return o, nil
}

// ParseFinding reads the result of a verification.
func ParseFinding(word string) (flight.Finding, *Invalid) {
	return parseResult(word, ResultUnknown, flight.FindingNone)
}

// ParseResolution reads a person's decision about a flight in doubt.
func ParseResolution(word string) (flight.Finding, *Invalid) {
	return parseResult(word, ResultFail, flight.FindingFail)
}

// parseResult reads a result: third, besides the two that every result may be, is the word for a finding.
func parseResult(word, third string, finding flight.Finding) (flight.Finding, *Invalid) {
	switch word {
	case ResultHappened:
		return flight.FindingHappened, nil
	case ResultNotHappened:
		return flight.FindingNotHappened, nil
	case third:
		return finding, nil
	}
	return flight.FindingNone, BadField("/result", "must be happened, not_happened or %s", third)
}
