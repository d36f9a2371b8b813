package flight

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// CallbackPrefix begins every callback token. It begins with the prefix of all secrets of flightd, so every text that is
// logged or stored is cleaned of callback tokens, too.
const CallbackPrefix = "fltd_cb_"

// CallbackToken is what a callback token names: an attempt of a flight.
type CallbackToken struct {
	ID         ID
	Generation uint32
	Token      Token
}

// The parts of a sealed callback token in bytes: id, store epoch, number and generation; and the MAC over them.
const (
	callbackNumbers = 16 + 4 + 4 + 4
	callbackLength  = callbackNumbers + sealedMAC/2
)

// callbackDomain begins the message of a callback token's MAC. The message is longer than that of a fencing token, so that
// neither MAC is ever valid as the other.
var callbackDomain = []byte("flightd callback")

// CallbackToken returns the callback token of the flight's newest attempt. Under resend it is that of the generation's first
// attempt, so that every attempt sends the provider the same request: a provider that honours an idempotency key rejects the
// key with another request, or calls only the first URL.
func (f *Flight) CallbackToken(h *Header) CallbackToken {
	token := h.TokenOf(f.Newest())
	if f.Policy.Recovery == RecoveryResend && token.Number >= f.AttemptCount {
		token.Number -= f.AttemptCount - 1
	}
	return CallbackToken{ID: f.ID, Generation: f.Generation, Token: token}
}

// Seal encodes a callback token for a URL. Its bearer may report the attempt, and nothing else. An empty secret seals
// nothing, as with Token.Seal.
func (c CallbackToken) Seal(secret []byte) string {
	if len(secret) == 0 {
		return ""
	}
	raw := make([]byte, 0, callbackLength)
	raw = append(raw, c.ID[:]...)
	for _, n := range [...]uint32{c.Token.StoreEpoch, c.Token.Number, c.Generation} {
		raw = binary.BigEndian.AppendUint32(raw, n)
	}
	mac := hmacSHA256(secret, callbackDomain, raw)
	return CallbackPrefix + base64.RawURLEncoding.EncodeToString(append(raw, mac[:sealedMAC/2]...))
}

// UnsealCallback decodes a sealed callback token. ok is false for every other text, and while the secret is empty.
func UnsealCallback(s string, secret []byte) (c CallbackToken, ok bool) {
	text, found := strings.CutPrefix(s, CallbackPrefix)
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if !found || err != nil || len(raw) != callbackLength || len(secret) == 0 {
		return c, false
	}
	if mac := hmacSHA256(secret, callbackDomain, raw[:callbackNumbers]); !hmac.Equal(raw[callbackNumbers:], mac[:sealedMAC/2]) {
		return c, false
	}
	number := binary.BigEndian.Uint32
	c = CallbackToken{Generation: number(raw[24:]), Token: Token{StoreEpoch: number(raw[16:]), Number: number(raw[20:])}}
	copy(c.ID[:], raw)
	return c, true
}

// ReportOf returns the token under which a callback is reported to the ledger. Under resend the provider does one job for all attempts of a
// generation, so its callback is reported for the newest attempt.
//
// A provider that got no answer calls again, perhaps after the next attempt was opened. So, under resend, a callback without success that
// equals a recorded callback of an earlier attempt is a repeat. It is reported for that earlier attempt, where it changes nothing.
//
// early: the attempt's caller may still act, because it has not suspended the attempt. Only a success can be reported then. After
// every other outcome another caller may act, beside the first. The caller's right only ever ends, so a view that is behind the
// ledger never lets a callback in too soon.
func (c CallbackToken) ReportOf(f *Flight, h *Header, r *Report) (token Token, early, repeat bool) {
	token = c.Token
	a := f.Newest()
	if a == nil || f.Generation != c.Generation {
		return token, false, false
	}
	newest := h.TokenOf(a)
	if f.Policy.Recovery == RecoveryResend && token.StoreEpoch == newest.StoreEpoch && token.Number < newest.Number {
		token = newest
		for i := range f.Attempts[:len(f.Attempts)-1] {
			if b := &f.Attempts[i]; r.Outcome != OutcomeSucceeded && b.hasCallback(r.callbackPrint()) {
				return h.TokenOf(b), false, true
			}
		}
	}
	isNewest := token == newest || token == a.Token()
	return token, isNewest && a.IsOpen() && f.State == StateRunning && r.Outcome != OutcomeSucceeded, false
}

// An attempt records at most maxCallbackPrints different callbacks.
const (
	printLength       = 8 // bytes
	maxCallbackPrints = 8
)

// callbackPrint identifies the content of a callback in an attempt.
func (c *Report) callbackPrint() []byte {
	text := fmt.Appendf(nil, "%d\n%q\n%q\n%x", c.Outcome, Sanitize(c.ExternalID), Sanitize(c.Error), c.Body.Digest)
	sum := sha256.Sum256(text)
	return sum[:printLength]
}

func (a *Attempt) hasCallback(print []byte) bool {
	for known := range slices.Chunk(a.Callbacks, printLength) {
		if bytes.Equal(known, print) {
			return true
		}
	}
	return false
}

// recordCallback records a report without success for the newest attempt under resend, because the report may be a callback. If its
// provider repeats it after the next attempt was opened, ReportOf finds it.
func (t *transition) recordCallback(c *Report) {
	f := t.flight()
	if f.State.Terminal() || f.Policy.Recovery != RecoveryResend || c.Outcome == OutcomeSucceeded {
		return
	}
	print := c.callbackPrint()
	if a := f.Newest(); !a.hasCallback(print) && len(a.Callbacks) < maxCallbackPrints*printLength {
		t.newestAttempt().Callbacks = append(slices.Clip(a.Callbacks), print...)
	}
}
