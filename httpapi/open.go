package httpapi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// open serves POST /v1/flights:open.
func (a *api) open(w http.ResponseWriter, r *http.Request) {
	body, bad := a.receiveBody(w, r, wire.MaxOpenBody)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	req, nonce, bad := a.openRequest(r, body)
	if bad != nil {
		a.writeOpenError(w, r, req.Key, nonce, bad)
		return
	}
	end, err := a.limits.StartOpen(req.Key.Namespace())
	if err != nil {
		a.writeOpenError(w, r, req.Key, nonce, err)
		return
	}
	defer end()
	a.setStillAllowed(r, &req)
	answer, err := a.cfg.Remote.Open(r.Context(), req)
	if isDuplicate(answer, err) {
		a.cfg.Duplicates.CountDuplicate(req.Key, callerName(r, req.Owner))
	}
	var fenced *effect.Fenced
	if errors.As(err, &fenced) { // nothing was opened by this request, so a new nonce may open
		p := problemOf(err)
		p.Nonce = nonce
		p.Detail = "the attempt that this nonce opened has ended"
		p.Hint = "do not act; open again with a new nonce and follow that answer"
		a.writeAndLogProblem(w, r, p, nil)
		return
	}
	a.writeOpenAnswer(w, r, req.Key, nonce, answer, err)
}

// openRequest parses an open. It also returns the nonce as the caller wrote it.
func (a *api) openRequest(r *http.Request, body []byte) (req remote.OpenRequest, nonce string, bad *wire.Invalid) {
	open, bad := wire.DecodeOpen(body)
	if bad != nil {
		return req, "", bad
	}
	if req.Key, bad = keyFrom(r, open.Action, open.ID); bad != nil {
		return req, open.Nonce, bad
	}
	if bad = checkIdempotencyKey(r.Header[effect.HeaderIdempotencyKey], req.Key); bad != nil {
		return req, open.Nonce, bad
	}
	if req.Submission, bad = open.Submission(); bad != nil {
		return req, open.Nonce, bad
	}
	if req.TTL, bad = wire.TTL(open.TTLMS); bad != nil {
		return req, open.Nonce, bad
	}
	req.Session, req.Owner, req.Wait = a.unsealSession(r, open.Session), auth.Redact(open.Owner), wire.Wait(open.WaitMS)
	return req, open.Nonce, setNonce(&req, open.Nonce, open.NotAfter)
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
func setNonce(req *remote.OpenRequest, nonce string, notAfter int64) *wire.Invalid {
	if nonce == "" {
		_, _ = rand.Read(req.Nonce[:]) // never fails: crypto/rand crashes the program instead
		req.NoNonce = true
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
func checkIdempotencyKey(given []string, key flight.Key) *wire.Invalid {
	for _, g := range given {
		ours := func(word string) bool { return g == word || g == `"`+quotedString.Replace(word)+`"` }
		if !ours(key.BusinessID()) && !ours(key.String()) {
			return &wire.Invalid{Code: wire.KeyInvalid, Hint: "remove the Idempotency-Key header, or set it to the id; flightd identifies an intent by action and id only",
				FieldError: wire.FieldError{Header: effect.HeaderIdempotencyKey, Detail: fmt.Sprintf("differs from the id and from the full key of this flight, %s", key)}}
		}
	}
	return nil
}

var quotedString = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// writeOpenAnswer writes the answer to an open or a verification. Only proceed permits the effect, and only it is a
// 201.
func (a *api) writeOpenAnswer(w http.ResponseWriter, r *http.Request, key flight.Key, nonce string, answer remote.OpenAnswer, err error) {
	switch {
	case err != nil:
		a.writeOpenError(w, r, key, nonce, err)
	case answer.Decision == flight.DecisionReplay:
		a.writeReplay(w, r, nonce, answer)
	case answer.Decision == flight.DecisionProceed:
		a.writeProceed(w, r, http.StatusCreated, wire.DecisionProceed, nonce, answer)
	case answer.Decision == flight.DecisionVerify:
		a.writeProceed(w, r, http.StatusOK, wire.DecisionVerify, nonce, answer)
	default:
		a.writeOpenError(w, r, key, nonce, errors.New("httpapi: unexpected decision "+answer.Decision.String()))
	}
}

// writeProceed writes the decision proceed or verify.
func (a *api) writeProceed(w http.ResponseWriter, r *http.Request, status int, decision, nonce string, o remote.OpenAnswer) {
	f := o.Flight
	out := wire.OpenAnswer{
		Decision: decision, Nonce: nonce, FlightID: f.ID.String(), Key: f.Key.String(), Generation: f.Generation, Attempt: f.AttemptNumber(),
		FencingToken: o.FencingToken, IdempotencyKey: o.IdempotencyKey, Verification: o.Verification, Session: a.sealSession(r, o.Session),
		TrustMS: o.Trust.Milliseconds(), RenewEveryMS: o.RenewEvery.Milliseconds(), PolicyDiffers: o.PolicyDiffers,
		Deployment: a.cfg.Version.Deployment,
	}
	if o.ResendWithin != nil {
		ms := o.ResendWithin.Milliseconds()
		out.ResendMS = &ms
	}
	switch in := o.Input; {
	case len(in.Data) == 0:
	case wire.IsJSONType(in.ContentType) && wire.ValidJSON(in.Data):
		out.Input = in.Data
	default:
		out.InputBase64, out.InputContentType = in.Data, in.ContentType
	}
	if o.Previous != nil {
		out.Previous = wire.AttemptOf(o.Previous)
	}
	out.Policy = policyIfDifferent(f, o.PolicyDiffers)
	h := w.Header()
	h[wire.HeaderFlightID] = []string{out.FlightID}
	h[wire.HeaderState] = []string{f.State.String()}
	h[wire.HeaderReplayed] = headerFalse
	writeResponse(w, r, status, typeJSON, out.AppendJSON)
}

// policyIfDifferent returns the policy of a flight if it differs from the caller's; else nil.
func policyIfDifferent(f *flight.Flight, differs bool) *wire.Policy {
	if !differs {
		return nil
	}
	policy := wire.PolicyOf(f.Policy)
	return &policy
}

// writeReplay answers with the stored outcome. A failure is a 424, so that no client mistakes it for a success.
func (a *api) writeReplay(w http.ResponseWriter, r *http.Request, nonce string, o remote.OpenAnswer) {
	f, body, err := a.loadReceiptBody(r, o.Flight)
	if f.State == flight.StateAbsent { // freed after the ledger's reply: the next open starts a new generation
		err = &effect.Busy{Key: o.Flight.Key, State: f.State, Proposed: true} // the open may have been proposed; see effect.InDoubt
	}
	if err != nil {
		a.writeOpenError(w, r, f.Key, nonce, err)
		return
	}
	h := w.Header()
	setFlightHeaders(h, f)
	if f.State == flight.StateExpired { // expired after the ledger's reply
		p := noReceiptProblem(f)
		p.Nonce = nonce
		a.writeAndLogProblem(w, r, p, nil)
		return
	}
	shown := wire.FlightOf(f, body, true)
	shown.Source, h[wire.HeaderReplayed] = effect.SourceReplayed.String(), headerTrue
	if o.Joined {
		shown.Source, h[wire.HeaderReplayed] = effect.SourceJoined.String(), headerFalse
	}
	if f.State == flight.StateSucceeded {
		out := wire.OpenAnswer{Decision: wire.DecisionReplay, Flight: shown, PolicyDiffers: o.PolicyDiffers, Policy: policyIfDifferent(f, o.PolicyDiffers)}
		writeResponse(w, r, http.StatusOK, typeJSON, out.AppendJSON)
		return
	}
	p := failedProblem(f, shown)
	p.Decision, p.Nonce = wire.DecisionReplay, nonce
	a.writeAndLogProblem(w, r, p, nil)
}

// failedProblem is the problem for a flight that ended without success.
func failedProblem(f *flight.Flight, shown *wire.Flight) *wire.Problem {
	p := newKeyProblem(wire.FlightFailed, f.Key, 0)
	p.State, p.Detail, p.Flight = f.State.String(), failureCause(f), shown
	if !f.Reopenable() {
		p.Hint = "the answer is final, and every repeat gets it; to try again, use a new id"
	}
	return p
}

// failureCause describes why a flight ended without success.
func failureCause(f *flight.Flight) string {
	switch {
	case f.Receipt != nil:
		return "the provider refused the request"
	case f.Cause != "":
		return f.Cause
	}
	return "the flight is " + f.State.String()
}

// verification serves POST /v1/flights/{id}/verification.
func (a *api) verification(w http.ResponseWriter, r *http.Request) {
	req, nonce, bad := a.verificationRequest(w, r)
	if bad != nil {
		a.writeOpenError(w, r, flight.Key{}, nonce, bad)
		return
	}
	if !a.mayReport(w, r, req.ID) {
		return
	}
	defer a.limits.CountVerification()()
	a.setStillAllowed(r, &req.Open)
	answer, err := a.cfg.Remote.Verify(r.Context(), req)
	a.writeOpenAnswer(w, r, a.keyOf(r, req.ID), nonce, answer, err)
}

func (a *api) verificationRequest(w http.ResponseWriter, r *http.Request) (req remote.VerificationRequest, nonce string, bad *wire.Invalid) {
	if req.ID, bad = flightID(r); bad != nil {
		return req, "", bad
	}
	body, bad := readBody(w, r, wire.MaxReportBody) // Remote.Verify authenticates again, after it has recorded the finding
	if bad != nil {
		return req, "", bad
	}
	v, bad := wire.DecodeVerification(body)
	if bad != nil {
		return req, "", bad
	}
	if req.Verification = v.Verification; req.Verification == "" {
		return req, v.Nonce, wire.BadField("/verification", "missing; send the verification from the answer verify")
	}
	if req.Result, bad = wire.ParseFinding(v.Result); bad != nil {
		return req, v.Nonce, bad
	}
	if req.Body, bad = v.Blob(); bad != nil {
		return req, v.Nonce, bad
	}
	if req.ExternalID = v.ExternalID; req.Result != flight.FindingHappened && (req.ExternalID != "" || req.Body.Size > 0) {
		return req, v.Nonce, receiptWithoutEffect()
	}
	open := &req.Open
	if open.TTL, bad = wire.TTL(v.TTLMS); bad != nil {
		return req, v.Nonce, bad
	}
	open.Session, open.Owner, open.Wait = a.unsealSession(r, v.Session), auth.Redact(v.Owner), wire.Wait(v.WaitMS)
	return req, v.Nonce, setNonce(open, v.Nonce, v.NotAfter)
}

// abandon serves POST /v1/flights:abandon.
func (a *api) abandon(w http.ResponseWriter, r *http.Request) {
	req, nonce, bad := a.abandonRequest(w, r)
	if bad != nil {
		a.writeOpenError(w, r, req.Key, nonce, bad)
		return
	}
	if err := a.cfg.Remote.Abandon(r.Context(), req); err != nil {
		a.writeOpenError(w, r, req.Key, nonce, err)
		return
	}
	out := wire.AbandonAnswer{Nonce: nonce}
	writeResponse(w, r, http.StatusOK, typeJSON, out.AppendJSON)
}

// abandonRequest parses an abandon. It also returns the nonce as the caller wrote it.
func (a *api) abandonRequest(w http.ResponseWriter, r *http.Request) (req remote.AbandonRequest, nonce string, bad *wire.Invalid) {
	body, bad := a.receiveBody(w, r, wire.MaxSmallBody)
	if bad != nil {
		return req, "", bad
	}
	abandon, bad := wire.DecodeAbandon(body)
	if bad != nil {
		return req, "", bad
	}
	if req.Key, bad = keyFrom(r, abandon.Action, abandon.ID); bad != nil {
		return req, abandon.Nonce, bad
	}
	switch {
	case abandon.Nonce == "":
		return req, "", wire.BadField("/nonce", "missing; send the nonce of the open")
	case abandon.NotAfter == 0:
		return req, abandon.Nonce, wire.BadField("/not_after", "missing; send the not_after of the open")
	}
	req.Nonce, req.NotAfter, req.Error = wire.NonceOf(abandon.Nonce), flight.Time(abandon.NotAfter), auth.Redact(abandon.Reason)
	return req, abandon.Nonce, nil
}

// receiptWithoutEffect is the error for a receipt together with a result other than happened: one of the two is wrong.
func receiptWithoutEffect() *wire.Invalid {
	bad := wire.BadField("/result", "external_id and body are allowed only with the result happened")
	bad.Hint = "set result to happened, or remove external_id and body"
	return bad
}
