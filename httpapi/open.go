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

// callRoutes serve callers that perform effects themselves.
type callRoutes struct {
	*flightWriter
	remote     Calls
	duplicates DuplicateCounter
	deployment string
	publicURL  string // Callers.PublicURL
}

func (cr *callRoutes) routes() map[string]route {
	const report = auth.Submit | auth.Work
	return map[string]route{
		"POST /v1/flights:open":              {serve: cr.open, access: with(auth.Submit)},
		"POST /v1/flights:abandon":           {serve: cr.abandon, access: with(report)},
		"POST /v1/flights/{id}/report":       {serve: cr.report, access: with(report)},
		"POST /v1/flights/{id}/verification": {serve: cr.verification, access: with(report)},
	}
}

// open serves POST /v1/flights:open.
func (cr *callRoutes) open(w http.ResponseWriter, r *http.Request) error {
	body, bad := cr.receiveBody(w, r, wire.MaxOpenBody)
	if bad != nil {
		return bad
	}
	req, nonce, bad := cr.openRequest(r, body)
	if bad != nil {
		return aboutOpen(req.Key, nonce, bad)
	}
	end, err := cr.limits.StartOpen(req.Key.Namespace())
	if err != nil {
		return aboutOpen(req.Key, nonce, err)
	}
	defer end()
	cr.setStillAllowed(r, &req)
	answer, err := cr.remote.Open(r.Context(), req)
	if isDuplicate(answer, err) && !(isLine(r) && errors.As(err, new(*effect.Busy))) { // the caller of a line that is busy asks again
		cr.duplicates.CountDuplicate(req.Key, callerName(r, req.Owner))
	}
	if errors.As(err, new(*effect.Fenced)) { // nothing was opened by this request, so a new nonce may open
		p := problemOf(err)
		p.Nonce = nonce
		p.Detail = "the attempt that this nonce opened has ended"
		p.Hint = "do not act; open again with a new nonce and follow that answer"
		return problemError{problem: p}
	}
	return cr.writeOpenAnswer(w, r, req.Key, nonce, answer, err)
}

// openRequest parses an open. It also returns the nonce as the caller wrote it.
func (cr *callRoutes) openRequest(r *http.Request, body []byte) (req remote.OpenRequest, nonce string, bad *wire.Invalid) {
	open, bad := wire.DecodeOpen(body)
	if bad != nil {
		return req, "", bad
	}
	ns, bad := namespace(r)
	if bad != nil {
		return req, open.Nonce, bad
	}
	parsed, bad := open.Parse(ns)
	if bad == nil {
		bad = checkIdempotencyKey(r.Header[effect.HeaderIdempotencyKey], parsed.Key)
	}
	req.Key, req.Submission = parsed.Key, parsed.Submission
	if bad == nil {
		bad = setRequester(r, &req.Submission, open.Owner)
	}
	if cr.setOpening(r, &req, parsed.Opening, open.Session, open.Owner); isLine(r) {
		req.Wait = 0 // the other lines of the batch do not wait for other callers, either
	}
	req.Callback, req.PublicURL = open.Callback, cr.publicURL
	return req, open.Nonce, bad
}

// setOpening sets how a request opens an attempt. A caller without a nonce cannot repeat the request, so the node draws a nonce
// and sets its own limit.
func (cr *callRoutes) setOpening(r *http.Request, req *remote.OpenRequest, o wire.Opening, session, owner string) {
	req.Session, req.Owner = cr.unsealSession(r, session), auth.Redact(owner)
	req.Nonce, req.NoNonce, req.NotAfter, req.TTL, req.Wait = o.Nonce, o.NoNonce, o.NotAfter, o.TTL, o.Wait
	req.Trace = cr.traceOf(r)
	if o.NoNonce {
		_, _ = rand.Read(req.Nonce[:]) // never fails: crypto/rand crashes the program instead
	}
}

// checkIdempotencyKey rejects an Idempotency-Key header that differs from the flight's key. The key is made from the
// body alone, so a caller that relies on another key in the header would not be protected. The header may be a bare
// word or a quoted string (RFC 8941).
func checkIdempotencyKey(given []string, key flight.Key) *wire.Invalid {
	for _, g := range given {
		matches := func(word string) bool { return g == word || g == `"`+quotedString.Replace(word)+`"` }
		if !matches(key.BusinessID()) && !matches(key.String()) {
			return &wire.Invalid{Code: wire.KeyInvalid, Hint: "remove the Idempotency-Key header, or set it to the id; flightd identifies an intent by action and id only",
				FieldError: wire.FieldError{Header: effect.HeaderIdempotencyKey, Detail: fmt.Sprintf("differs from the id and from the full key of this flight, %s", key)}}
		}
	}
	return nil
}

var quotedString = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// writeOpenAnswer writes the answer to an open or a verification. Only proceed permits the effect, and only it is a
// 201.
func (cr *callRoutes) writeOpenAnswer(w http.ResponseWriter, r *http.Request, key flight.Key, nonce string, answer remote.OpenAnswer, err error) error {
	switch {
	case err != nil:
		return aboutOpen(key, nonce, err)
	case answer.Decision == flight.DecisionReplay:
		return cr.writeReplay(w, r, nonce, answer)
	case answer.Decision == flight.DecisionProceed:
		return cr.writeProceed(w, r, http.StatusCreated, wire.DecisionProceed, nonce, answer)
	case answer.Decision == flight.DecisionVerify:
		return cr.writeProceed(w, r, http.StatusOK, wire.DecisionVerify, nonce, answer)
	default:
		return aboutOpen(key, nonce, errors.New("httpapi: unexpected decision "+answer.Decision.String()))
	}
}

// writeProceed writes the decision proceed or verify.
func (cr *callRoutes) writeProceed(w http.ResponseWriter, r *http.Request, status int, decision, nonce string, o remote.OpenAnswer) error {
	out := cr.grantedAnswer(r, decision, nonce, &o, cr.deployment)
	h := w.Header()
	h[wire.HeaderFlightID] = []string{out.FlightID}
	h[wire.HeaderState] = []string{o.Flight.State.String()}
	h[wire.HeaderReplayed] = headerFalse
	return writeJSON(w, r, status, &out)
}

// grantedAnswer is the answer proceed or verify.
func (sc *scope) grantedAnswer(r *http.Request, decision, nonce string, o *remote.OpenAnswer, deployment string) wire.OpenAnswer {
	f := o.Flight
	out := wire.OpenAnswer{
		Decision: decision, Nonce: nonce, FlightID: f.ID.String(), Key: f.Key.String(), Generation: f.Generation, Attempt: f.AttemptNumber(),
		FencingToken: o.FencingToken, IdempotencyKey: o.IdempotencyKey, Verification: o.Verification, Session: sc.sealSession(r, o.Session),
		TrustMS: o.Trust.Milliseconds(), RenewEveryMS: o.RenewEvery.Milliseconds(), PolicyDiffers: o.PolicyDiffers,
		CallbackURL: o.CallbackURL, Deployment: deployment,
	}
	if o.Decision == flight.DecisionProceed {
		out.Traceparent = f.Span(f.Newest()).Traceparent()
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
	return out
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
func (cr *callRoutes) writeReplay(w http.ResponseWriter, r *http.Request, nonce string, o remote.OpenAnswer) error {
	f, body, err := cr.loadReceiptBody(r, o.Flight)
	if f.State == flight.StateAbsent { // freed after the ledger's reply: the next open starts a new generation
		err = &effect.Busy{Key: o.Flight.Key, State: f.State, Proposed: true} // the open may have been proposed; see effect.InDoubt
	}
	if err != nil {
		return aboutOpen(f.Key, nonce, err)
	}
	h := w.Header()
	setFlightHeaders(h, f)
	if f.State == flight.StateExpired { // expired after the ledger's reply
		p := noReceiptProblem(f)
		p.Nonce = nonce
		return problemError{problem: p}
	}
	shown := wire.FlightOf(f, body, true)
	shown.Source, h[wire.HeaderReplayed] = effect.SourceReplayed.String(), headerTrue
	if o.Joined {
		shown.Source, h[wire.HeaderReplayed] = effect.SourceJoined.String(), headerFalse
	}
	if f.State == flight.StateSucceeded {
		out := wire.OpenAnswer{Decision: wire.DecisionReplay, Flight: shown, PolicyDiffers: o.PolicyDiffers, Policy: policyIfDifferent(f, o.PolicyDiffers)}
		return writeJSON(w, r, http.StatusOK, &out)
	}
	p := failedProblem(f, shown)
	p.Decision, p.Nonce = wire.DecisionReplay, nonce
	return problemError{problem: p}
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
func (cr *callRoutes) verification(w http.ResponseWriter, r *http.Request) error {
	req, nonce, bad := cr.verificationRequest(w, r)
	if bad != nil {
		return aboutOpen(flight.Key{}, nonce, bad)
	}
	if err := cr.mayReport(r, req.ID); err != nil {
		return err
	}
	defer cr.limits.CountVerification()()
	cr.setStillAllowed(r, &req.Open)
	answer, err := cr.remote.Verify(r.Context(), req)
	return cr.writeOpenAnswer(w, r, cr.keyOf(r, req.ID), nonce, answer, err)
}

func (cr *callRoutes) verificationRequest(w http.ResponseWriter, r *http.Request) (req remote.VerificationRequest, nonce string, bad *wire.Invalid) {
	if req.ID, bad = flightID(r); bad != nil {
		return req, "", bad
	}
	v, bad := receive(readBody, w, r, wire.MaxReportBody, wire.Decode[wire.VerificationRequest]) // Remote.Verify authenticates again, after it has recorded the finding
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
	opening, bad := v.Opening()
	cr.setOpening(r, &req.Open, opening, v.Session, v.Owner)
	req.Open.Callback, req.Open.PublicURL = v.Callback, cr.publicURL
	return req, v.Nonce, bad
}

// abandon serves POST /v1/flights:abandon.
func (cr *callRoutes) abandon(w http.ResponseWriter, r *http.Request) error {
	req, nonce, bad := cr.abandonRequest(w, r)
	if bad != nil {
		return aboutOpen(req.Key, nonce, bad)
	}
	if err := cr.remote.Abandon(r.Context(), req); err != nil {
		return aboutOpen(req.Key, nonce, err)
	}
	out := wire.AbandonAnswer{Nonce: nonce}
	return writeJSON(w, r, http.StatusOK, &out)
}

// abandonRequest parses an abandon. It also returns the nonce as the caller wrote it.
func (cr *callRoutes) abandonRequest(w http.ResponseWriter, r *http.Request) (req remote.AbandonRequest, nonce string, bad *wire.Invalid) {
	abandon, bad := receive(cr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.AbandonRequest])
	if bad != nil {
		return req, "", bad
	}
	ns, bad := namespace(r)
	if bad == nil {
		req.Key, bad = wire.KeyOrStep(ns, abandon.Action, abandon.ID)
	}
	if bad != nil {
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
