package httpapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
	"github.com/flightd/flightd/remote"
)

// open serves POST /v1/flights:open.
func (a *api) open(w http.ResponseWriter, r *http.Request) {
	body, bad := readBody(w, r, wire.MaxOpenBody)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	req, nonce, bad := openRequest(r, body)
	if bad != nil {
		a.fail(w, r, req.Key, bad)
		return
	}
	answer, err := a.cfg.Remote.Open(r.Context(), req)
	if suppressed(answer, err) {
		a.cfg.Tallies.Duplicate(req.Key, caller(r, req.Owner))
	}
	var fenced *effect.Fenced
	if errors.As(err, &fenced) { // nothing was opened by this request, so a new nonce may open
		p := problemOf(err)
		p.Detail = "the attempt that this nonce opened has ended"
		p.Hint = "do not act; open again with a new nonce and follow that answer"
		a.answer(w, r, p, nil)
		return
	}
	a.answerOpen(w, r, req.Key, nonce, answer, err)
}

// openRequest parses an open. It also returns the nonce as the caller wrote it.
func openRequest(r *http.Request, body []byte) (req remote.OpenRequest, nonce string, bad *wire.Invalid) {
	open, bad := wire.DecodeOpen(body)
	if bad != nil {
		return req, "", bad
	}
	if req.Key, bad = keyFrom(r, open.Action, open.ID); bad != nil {
		return req, "", bad
	}
	if bad = sameKey(r.Header[effect.HeaderIdempotencyKey], req.Key); bad != nil {
		return req, "", bad
	}
	if req.Submission, bad = open.Submission(); bad != nil {
		return req, "", bad
	}
	if req.TTL, bad = wire.TTL(open.TTLMS); bad != nil {
		return req, "", bad
	}
	req.Session, req.Owner, req.Wait = flight.SessionID(open.Session), open.Owner, wire.Wait(open.WaitMS)
	return req, open.Nonce, name(&req, open.Nonce, open.NotAfter)
}

// keyFrom returns the key of a request with action and id in its body and the namespace in a header.
func keyFrom(r *http.Request, action, id string) (flight.Key, *wire.Invalid) {
	ns, bad := namespace(r)
	if bad != nil {
		return flight.Key{}, bad
	}
	return wire.Key(ns, action, id)
}

// setNonce sets the nonce of an open and the time after which it cannot open an attempt. A caller without a nonce
// cannot repeat the open, so the node draws a nonce and sets its own limit.
func name(req *remote.OpenRequest, nonce string, notAfter int64) *wire.Invalid {
	if nonce == "" {
		_, _ = rand.Read(req.Nonce[:]) // never fails: crypto/rand crashes the program instead
		req.Unnamed = true
		if notAfter != 0 {
			bad := wire.BadField("/not_after", "not_after is allowed only with a nonce")
			bad.Hint = "send a random nonce, new for each open, or remove not_after"
			return bad
		}
		return nil
	}
	req.Nonce, req.NotAfter = wire.NonceOf(nonce), flight.Time(notAfter)
	return nil
}

// checkIdempotencyKey rejects an Idempotency-Key header that differs from the flight's key. The key is made from the
// body alone, so a caller that relies on another key in the header would not be protected. The header may be a bare
// word or a quoted string (RFC 8941).
func sameKey(given []string, key flight.Key) *wire.Invalid {
	for _, g := range given {
		ours := func(word string) bool { return g == word || g == `"`+quoting.Replace(word)+`"` }
		if !ours(key.BusinessID()) && !ours(key.String()) {
			return &wire.Invalid{Code: wire.KeyInvalid, Hint: "remove the Idempotency-Key header, or set it to the id; flightd identifies an intent by action and id only",
				FieldError: wire.FieldError{Header: effect.HeaderIdempotencyKey, Detail: fmt.Sprintf("differs from the id and from the full key of this flight, %s", key)}}
		}
	}
	return nil
}

var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// writeOpenAnswer writes the answer to an open or a verification. Only proceed permits the effect, and only it is a
// 201.
func (a *api) answerOpen(w http.ResponseWriter, r *http.Request, key flight.Key, nonce string, answer remote.OpenAnswer, err error) {
	switch {
	case err != nil:
		a.fail(w, r, key, err)
	case answer.Decision == flight.Replay:
		a.replay(w, r, answer)
	case answer.Decision == flight.Proceed:
		a.clear(w, r, http.StatusCreated, wire.DecisionProceed, nonce, answer)
	case answer.Decision == flight.Look:
		a.clear(w, r, http.StatusOK, wire.DecisionVerify, nonce, answer)
	default:
		a.fail(w, r, key, errors.New("httpapi: unexpected decision "+answer.Decision.String()))
	}
}

// writeProceed writes the decision proceed or verify.
func (a *api) clear(w http.ResponseWriter, r *http.Request, status int, decision, nonce string, o remote.OpenAnswer) {
	f := o.Flight
	out := wire.OpenAnswer{
		Decision: decision, Nonce: nonce, FlightID: f.ID.String(), Key: f.Key.String(), Generation: f.Generation, Attempt: f.AttemptNumber(),
		FencingToken: o.FencingToken, IdempotencyKey: o.IdempotencyKey, Probe: o.Probe, Session: string(o.Session),
		TrustMS: o.Trust.Milliseconds(), RenewEveryMS: o.RenewEvery.Milliseconds(), PolicyDiffers: o.PolicyDiffers,
		Deployment: a.cfg.Version.Deployment,
	}
	if o.Resend != nil {
		ms := o.Resend.Milliseconds()
		out.ResendMS = &ms
	}
	switch in := o.Input; {
	case len(in.Data) == 0:
	case wire.IsJSONType(in.ContentType) && wire.ValidJSON(in.Data):
		out.Input = in.Data
	default:
		out.InputBase64, out.InputType = in.Data, in.ContentType
	}
	if o.Previous != nil {
		out.Previous = wire.AttemptOf(o.Previous)
	}
	out.Policy = standing(f, o.PolicyDiffers)
	h := w.Header()
	h[wire.HeaderFlightID] = []string{out.FlightID}
	h[wire.HeaderState] = []string{f.State.String()}
	h[wire.HeaderReplayed] = no
	send(w, r, status, typeJSON, out.AppendJSON)
}

// policyIfDifferent returns the policy of a flight if it differs from the caller's; else nil.
func standing(f *flight.Flight, differs bool) *wire.Policy {
	if !differs {
		return nil
	}
	policy := wire.PolicyOf(f.Policy)
	return &policy
}

// writeReplay answers with the stored outcome. A failure is a 424, so that no client mistakes it for a success.
func (a *api) replay(w http.ResponseWriter, r *http.Request, o remote.OpenAnswer) {
	f, body, err := a.whole(o.Flight)
	if f.State == flight.Absent { // freed after the ledger's reply: the next open starts a new generation
		err = &effect.Busy{Key: o.Flight.Key, State: f.State, Proposed: true} // the open may have been proposed; see effect.InDoubt
	}
	if err != nil {
		a.fail(w, r, f.Key, err)
		return
	}
	h := w.Header()
	describe(h, f)
	if f.State == flight.Expired { // expired after the ledger's reply
		a.answer(w, r, noReceipt(f), nil)
		return
	}
	shown := wire.FlightOf(f, body, true)
	shown.Source, h[wire.HeaderReplayed] = effect.Replayed.String(), yes
	if o.Joined {
		shown.Source, h[wire.HeaderReplayed] = effect.Joined.String(), no
	}
	if f.State == flight.StateSucceeded {
		out := wire.OpenAnswer{Decision: wire.DecisionReplay, Flight: shown, PolicyDiffers: o.PolicyDiffers, Policy: standing(f, o.PolicyDiffers)}
		send(w, r, http.StatusOK, typeJSON, out.AppendJSON)
		return
	}
	p := failed(f, shown)
	p.Decision = wire.DecisionReplay
	a.answer(w, r, p, nil)
}

// failedProblem is the problem for a flight that ended without success.
func failed(f *flight.Flight, shown *wire.Flight) *wire.Problem {
	p := about(wire.FlightFailed, f.Key, 0)
	p.State, p.Detail, p.Flight = f.State.String(), failure(f), shown
	if !f.Reopenable() {
		p.Hint = "the answer is final, and every repeat gets it; to try again, use a new id"
	}
	return p
}

// failureCause describes why a flight ended without success.
func failure(f *flight.Flight) string {
	switch {
	case f.Receipt != nil:
		return "the provider refused the request"
	case f.Cause != "":
		return f.Cause
	}
	return "the flight is " + f.State.String()
}

// verification serves POST /v1/flights/{id}/verification.
func (a *api) verdict(w http.ResponseWriter, r *http.Request) {
	req, nonce, bad := a.verdictRequest(w, r)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	answer, err := a.cfg.Remote.Verdict(r.Context(), req)
	a.answerOpen(w, r, a.keyOf(req.ID), nonce, answer, err)
}

func (a *api) verdictRequest(w http.ResponseWriter, r *http.Request) (req remote.VerdictRequest, nonce string, bad *wire.Invalid) {
	if req.ID, bad = flightID(r); bad != nil {
		return req, "", bad
	}
	body, bad := readBody(w, r, wire.MaxReportBody)
	if bad != nil {
		return req, "", bad
	}
	v, bad := wire.DecodeVerdict(body)
	if bad != nil {
		return req, "", bad
	}
	if req.Probe = v.Probe; req.Probe == "" {
		return req, "", wire.BadField("/probe", "missing; send the verification from the answer verify")
	}
	if req.Result, bad = wire.ParseVerdict(v.Result); bad != nil {
		return req, "", bad
	}
	if req.Body, bad = v.Blob(); bad != nil {
		return req, "", bad
	}
	if req.ExternalID = v.ExternalID; req.Result != flight.Happened && (req.ExternalID != "" || req.Body.Size > 0) {
		return req, "", onlyWhatHappened()
	}
	open := &req.Open
	if open.TTL, bad = wire.TTL(v.TTLMS); bad != nil {
		return req, "", bad
	}
	open.Session, open.Owner, open.Wait = flight.SessionID(v.Session), v.Owner, wire.Wait(v.WaitMS)
	return req, v.Nonce, name(open, v.Nonce, v.NotAfter)
}

// abandon serves POST /v1/flights:abandon.
func (a *api) abandon(w http.ResponseWriter, r *http.Request) {
	req, bad := abandonRequest(w, r)
	if bad != nil {
		a.fail(w, r, req.Key, bad)
		return
	}
	if err := a.cfg.Remote.Abandon(r.Context(), req); err != nil {
		a.fail(w, r, req.Key, err)
		return
	}
	sendEmpty(w, r)
}

func abandonRequest(w http.ResponseWriter, r *http.Request) (req remote.AbandonRequest, bad *wire.Invalid) {
	body, bad := readBody(w, r, wire.MaxSmallBody)
	if bad != nil {
		return req, bad
	}
	abandon, bad := wire.DecodeAbandon(body)
	if bad != nil {
		return req, bad
	}
	if req.Key, bad = keyFrom(r, abandon.Action, abandon.ID); bad != nil {
		return req, bad
	}
	switch {
	case abandon.Nonce == "":
		return req, wire.BadField("/nonce", "missing; send the nonce of the open")
	case abandon.NotAfter == 0:
		return req, wire.BadField("/not_after", "missing; send the not_after of the open")
	}
	req.Nonce, req.NotAfter, req.Error = wire.NonceOf(abandon.Nonce), flight.Time(abandon.NotAfter), abandon.Reason
	return req, nil
}

// receiptWithoutEffect is the error for a receipt together with a result other than happened: one of the two is wrong.
func onlyWhatHappened() *wire.Invalid {
	bad := wire.BadField("/result", "external_id and body are allowed only with the result happened")
	bad.Hint = "set result to happened, or remove external_id and body"
	return bad
}
