package httpapi

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// flight serves GET /v1/flights/{id}.
func (a *api) flight(w http.ResponseWriter, r *http.Request) {
	id, bad := flightID(r)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	a.one(w, r, id)
}

// one answers with one flight; with If-None-Match only when it has another version, waiting for that as Prefer says.
func (a *api) one(w http.ResponseWriter, r *http.Request, id flight.ID) {
	seen, bad := readTags(r.Header["If-None-Match"])
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	f, ok := a.find(w, r, id)
	if !ok {
		return
	}
	same := seen.has(f.Version)
	if wait := preferredWait(r); same && wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		switch next, err := a.cfg.Ledger.Wait(ctx, id, f.Version); {
		case err == nil && next != nil && next.State == flight.Absent: // there is none any more
			a.gone(w, r, next)
			return
		case err == nil && next != nil:
			f, same = next, false
		case ctx.Err() == nil || r.Context().Err() != nil: // not that the wait is over: nobody can tell any more
			a.fail(w, r, f.Key, err)
			return
		}
		w.Header().Set(wire.HeaderApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
	}
	if same {
		describe(w.Header(), f)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	a.show(w, r, f)
}

// find reads the flight, or answers that there is none.
func (a *api) find(w http.ResponseWriter, r *http.Request, id flight.ID) (*flight.Flight, bool) {
	f, err := a.cfg.Ledger.Flight(id)
	switch {
	case err == nil && f != nil && f.State == flight.Absent:
		a.gone(w, r, f)
		return nil, false
	case err == nil && f == nil:
		err = &effect.Missing{ID: id}
	}
	if err != nil {
		a.fail(w, r, flight.Key{}, err)
		return nil, false
	}
	return f, true
}

// gone answers that there is no flight now: that its key was freed, and by whom, or that it was never used.
func (a *api) gone(w http.ResponseWriter, r *http.Request, f *flight.Flight) {
	switch {
	case len(f.Past) == 0 && len(f.Evidence) > 0: // a restored ledger has lost the attempt
		p := about(wire.NotFound, f.Key, 0)
		p.Detail = "no flight was ever made for this key, but late reports of it were kept as evidence"
		p.Hint = "read its events: GET /v1/flights/" + p.FlightID + "/events, or flightd why " + p.Key
		a.answer(w, r, p, nil)
		return
	case len(f.Past) == 0:
		a.fail(w, r, flight.Key{}, &effect.Missing{ID: f.ID})
		return
	}
	past := &f.Past[len(f.Past)-1]
	by := &past.EndedBy
	p := about(wire.NotFound, f.Key, 0)
	p.State, p.Version = f.State.String(), version(f.Version)
	p.Detail = fmt.Sprintf("the key was freed on %s by %s: %s; its flight was %s, and the next open acts",
		by.At.At().Format(wire.TimeFormat), cmp.Or(by.Who, unknownActor), cmp.Or(by.Why, "no reason was given"), past.State)
	p.Hint = "its story is there still: GET /v1/flights/" + p.FlightID + "/events, or flightd why " + p.Key
	a.answer(w, r, p, nil)
}

// seenTags are the versions that a caller has already.
type seenTags struct {
	any  bool // whatever it is: the caller waits for the next one
	list []flight.Version
}

func (s seenTags) has(v flight.Version) bool { return s.any || slices.Contains(s.list, v) }

// readTags reads If-None-Match: ETags, which may have become weak on their way through a proxy, or a star. A tag that is no
// version of ours is somebody else's, and is like none.
func readTags(lines []string) (s seenTags, bad *wire.Invalid) {
	for _, line := range lines {
		for rest := line; ; {
			if rest = strings.TrimLeft(rest, ", \t"); rest == "" {
				break
			}
			var tag string
			var ok bool
			if tag, rest, ok = cutTag(rest); !ok {
				return s, wire.BadHeader("If-None-Match", `it must be ETags, as in "8123.4" with the quotes, or *, not %.100q`, line)
			}
			if tag == "*" {
				s.any = true
			} else if v, err := flight.ParseVersion(tag); err == nil {
				s.list = append(s.list, v)
			}
		}
	}
	return s, nil
}

// cutTag takes the first ETag of a list, without its quotes, or a star.
func cutTag(list string) (tag, rest string, ok bool) {
	if tag = "*"; list[0] == '*' {
		rest = list[1:]
	} else {
		opaque, quoted := strings.CutPrefix(strings.TrimPrefix(list, "W/"), `"`)
		if tag, rest, ok = strings.Cut(opaque, `"`); !quoted || !ok {
			return "", "", false
		}
	}
	rest = strings.TrimLeft(rest, " \t")
	return tag, rest, rest == "" || rest[0] == ','
}

func parseETag(header, tag string) (flight.Version, *wire.Invalid) {
	inner, quoted := strings.CutPrefix(tag, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	v, err := flight.ParseVersion(inner)
	if !quoted || !closed || err != nil {
		return v, wire.BadHeader(header, `it must be one ETag of a flight, as in "8123.4" with the quotes, not %.100q`, tag)
	}
	return v, nil
}

// preferredWait reads wait=N, in seconds, of Prefer (RFC 7240). A preference that is not known or cannot be heeded is
// passed over, as the standard wants it; Preference-Applied says which was heeded.
func preferredWait(r *http.Request) time.Duration {
	for _, line := range r.Header[wire.HeaderPrefer] {
		for preference, rest := cutUnquoted(line, ','); preference != "" || rest != ""; preference, rest = cutUnquoted(rest, ',') {
			word, _ := cutUnquoted(preference, ';')
			name, value, _ := strings.Cut(word, "=")
			if strings.EqualFold(strings.TrimSpace(name), "wait") { // the first one counts
				return waitOf(strings.Trim(strings.TrimSpace(value), `"`))
			}
		}
	}
	return 0
}

// waitOf is how long to wait for a caller that wants so many seconds; 0 where that is no number.
func waitOf(seconds string) time.Duration {
	n, err := strconv.ParseUint(seconds, 10, 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return min(time.Duration(n)*time.Second, wire.MaxWaitMS*time.Millisecond)
}

// cutUnquoted cuts a header's value at the first separator that stands outside quotes.
func cutUnquoted(s string, separator byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// receipt serves GET /v1/flights/{id}/receipt: the exact bytes.
func (a *api) receipt(w http.ResponseWriter, r *http.Request) {
	f, body, ok := a.findBytes(w, r, receiptBody, a.cfg.Ledger.ReceiptBody)
	if !ok {
		return
	}
	if p := noReceipt(f); p != nil {
		a.lacking(w, r, f, p)
		return
	}
	h, rec := w.Header(), f.Receipt
	h[wire.HeaderReceiptOutcome] = []string{rec.Outcome.String()}
	if rec.ExternalID != "" {
		h[wire.HeaderExternalID] = []string{url.PathEscape(rec.ExternalID)}
	}
	sendBlob(w, r, f, &rec.Body, body)
}

// input serves GET /v1/flights/{id}/input: the exact bytes.
func (a *api) input(w http.ResponseWriter, r *http.Request) {
	f, body, ok := a.findBytes(w, r, func(f *flight.Flight) flight.Blob { return f.Input }, a.cfg.Ledger.Input)
	if !ok {
		return
	}
	if p := noInput(f); p != nil {
		a.lacking(w, r, f, p)
		return
	}
	sendBlob(w, r, f, &f.Input, body)
}

// findBytes reads the flight that the path names and the bytes of one of its blobs, or answers why it cannot.
func (a *api) findBytes(w http.ResponseWriter, r *http.Request, blob func(*flight.Flight) flight.Blob, read func(*flight.Flight) ([]byte, error)) (*flight.Flight, []byte, bool) {
	id, bad := flightID(r)
	if bad != nil {
		a.refuse(w, r, bad)
		return nil, nil, false
	}
	f, ok := a.find(w, r, id)
	if !ok {
		return nil, nil, false
	}
	f, body, err := a.bytesOf(f, blob, read)
	if err != nil {
		a.fail(w, r, f.Key, err)
		return nil, nil, false
	}
	return f, body, true
}

// lacking answers why a flight has no such bytes to show.
func (a *api) lacking(w http.ResponseWriter, r *http.Request, f *flight.Flight, p *wire.Problem) {
	describe(w.Header(), f)
	p.State = f.State.String()
	a.answer(w, r, p, nil)
}

// sendBlob answers with the bytes of a blob, and says what they are. They come from a provider or from a caller, so that no
// browser may take them for a page of this server.
func sendBlob(w http.ResponseWriter, r *http.Request, f *flight.Flight, blob *flight.Blob, body []byte) {
	h := w.Header()
	describe(h, f)
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Security-Policy"] = []string{"default-src 'none'; sandbox"}
	h[wire.HeaderReceiptDigest] = []string{blob.Digest.String()}
	h[wire.HeaderReceiptSize] = []string{strconv.Itoa(blob.Size)}
	if !blob.Truncated() {
		h[wire.HeaderDigest] = []string{"sha-256=" + base64.StdEncoding.EncodeToString(blob.Digest[:])}
	}
	kind := cmp.Or(blob.ContentType, "application/octet-stream")
	send(w, r, http.StatusOK, []string{kind}, func(b []byte) []byte { return append(b, body...) })
}

// noInput says why a flight has no input to show; nil when it has one.
func noInput(f *flight.Flight) *wire.Problem {
	switch {
	case f.State == flight.Expired:
		return expired(f)
	case f.Input.Digest.IsZero():
		p := about(wire.NotFound, f.Key, 0)
		p.Detail = "the flight was opened without an input"
		p.Hint = "its first caller sent none, or a fingerprint alone; its receipt and its history are there all the same"
		return p
	case f.Redacted != nil && f.Input.Truncated():
		p := about(wire.Expired, f.Key, 0)
		p.Detail = "its input was erased on " + f.Redacted.At.At().Format(wire.TimeFormat) + "; what happened is known as before"
		return p
	}
	return nil
}

// expired is the problem that of a flight only a tombstone is left.
func expired(f *flight.Flight) *wire.Problem {
	p := about(wire.Expired, f.Key, 0)
	p.FlightID, p.Outcome = f.ID.String(), f.Was.String()
	if f.Receipt != nil {
		p.Digest = f.Receipt.Body.Digest.String()
	}
	return p
}

// noReceipt says why a flight has none to show; nil when it has one.
func noReceipt(f *flight.Flight) *wire.Problem {
	switch {
	case f.State == flight.Expired:
		return expired(f)
	case f.Receipt != nil && f.Redacted != nil:
		p := about(wire.Expired, f.Key, 0)
		p.Detail = "its body was erased on " + f.Redacted.At.At().Format(wire.TimeFormat) + "; what happened is known as before"
		p.FlightID, p.Outcome, p.Digest = f.ID.String(), f.Receipt.Outcome.String(), f.Receipt.Body.Digest.String()
		return p
	case f.Receipt != nil:
		return nil
	case f.State.Terminal():
		return failed(f, wire.FlightOf(f, nil, true))
	}
	p := about(wire.NotFound, f.Key, 0)
	p.Detail = "the flight has no receipt yet: it is " + f.State.String()
	p.Hint = "a receipt is there once the flight has ended; If-None-Match with Prefer: wait=N on the flight waits for a change"
	return p
}

// sendValue is for answers that need not be fast.
func (a *api) sendValue(w http.ResponseWriter, r *http.Request, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		a.fail(w, r, flight.Key{}, err)
		return
	}
	send(w, r, status, typeJSON, func(b []byte) []byte { return append(b, body...) })
}
