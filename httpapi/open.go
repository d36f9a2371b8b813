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

// flightPath names a flight.
type flightPath struct {
	Flight flight.ID `json:"-" path:"id"`
}

type (
	reportOf struct {
		flightPath
		wire.ReportRequest
	}
	verificationOf struct {
		flightPath
		wire.VerificationRequest
	}
)

func (cr *callRoutes) routes() []declaration {
	report := with(auth.Submit | auth.Work)
	return []declaration{
		Endpoint[wire.OpenRequest, wire.OpenAnswer]{Pattern: "POST /v1/flights:open", Place: FinalProposal,
			Access: with(auth.Submit), Body: wire.MaxOpenBody, Serve: cr.open},
		Endpoint[wire.AbandonRequest, wire.AbandonAnswer]{Pattern: "POST /v1/flights:abandon",
			Access: report, Body: wire.MaxSmallBody, Serve: cr.abandon},
		Endpoint[reportOf, wire.Flight]{Pattern: "POST /v1/flights/{id}/report",
			Access: report, Body: wire.MaxReportBody, Proved: true, Serve: cr.report},
		Endpoint[verificationOf, wire.OpenAnswer]{Pattern: "POST /v1/flights/{id}/verification",
			Access: report, Body: wire.MaxReportBody, Proved: true, Serve: cr.verification},
	}
}

// open answers who may perform the effect of a key.
func (cr *callRoutes) open(q *Request, in *wire.OpenRequest) (*wire.OpenAnswer, error) {
	req, bad := cr.openRequest(q, in)
	if bad != nil {
		return nil, bad
	}
	end, err := cr.limits.StartOpen(req.Key.Namespace())
	if err != nil {
		return nil, err
	}
	defer end()
	cr.setStillAllowed(q.Request, &req)
	answer, err := cr.remote.Open(q.Context(), req)
	if isDuplicate(answer, err) && !(isLine(q.Request) && errors.As(err, new(*effect.Busy))) { // the caller of a line that is busy asks again
		cr.duplicates.CountDuplicate(req.Key, callerName(q.Request, req.Owner))
	}
	if errors.As(err, new(*effect.Fenced)) { // nothing was opened by this request, so a new nonce may open
		p := problemOf(err)
		p.Detail = "the attempt that this nonce opened has ended"
		p.Hint = "do not act; open again with a new nonce and follow that answer"
		return nil, problemError{problem: p}
	}
	return cr.openAnswer(q, &answer, err)
}

// openRequest is an open in the terms of package remote.
func (cr *callRoutes) openRequest(q *Request, in *wire.OpenRequest) (req remote.OpenRequest, bad *wire.Invalid) {
	q.nonce = in.Nonce
	ns, bad := namespace(q.Request)
	if bad != nil {
		return req, bad
	}
	parsed, bad := in.Parse(ns)
	if bad == nil {
		bad = checkIdempotencyKey(q.Header[effect.HeaderIdempotencyKey], parsed.Key)
	}
	q.key, req.Key, req.Submission = parsed.Key, parsed.Key, parsed.Submission
	if bad == nil {
		bad = setRequester(q.Request, &req.Submission, in.Owner)
	}
	if cr.setOpening(q.Request, &req, parsed.Opening, in.Session, in.Owner); isLine(q.Request) {
		req.Wait = 0 // the other lines of the batch do not wait for other callers, either
	}
	req.Callback, req.PublicURL = in.Callback, cr.publicURL
	return req, bad
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

// openAnswer is the answer to an open or a verification. Only proceed permits the effect, and only it is a 201.
func (cr *callRoutes) openAnswer(q *Request, a *remote.OpenAnswer, err error) (*wire.OpenAnswer, error) {
	if err != nil {
		return nil, err
	}
	switch a.Decision {
	case flight.DecisionReplay:
		return cr.replay(q, a)
	case flight.DecisionProceed:
		q.answerWith(http.StatusCreated)
		return cr.granted(q, wire.DecisionProceed, a), nil
	case flight.DecisionVerify:
		return cr.granted(q, wire.DecisionVerify, a), nil
	}
	return nil, errors.New("httpapi: unexpected decision " + a.Decision.String())
}

// granted is the answer proceed or verify.
func (cr *callRoutes) granted(q *Request, decision string, a *remote.OpenAnswer) *wire.OpenAnswer {
	out := cr.grantedAnswer(q.Request, decision, q.nonce, a, cr.deployment)
	q.header[wire.HeaderFlightID] = []string{out.FlightID}
	q.header[wire.HeaderState] = []string{a.Flight.State.String()}
	q.header[wire.HeaderReplayed] = headerFalse
	return &out
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

// replay is the answer with the stored outcome. A failure is a 424, so that no client mistakes it for a success.
func (cr *callRoutes) replay(q *Request, a *remote.OpenAnswer) (*wire.OpenAnswer, error) {
	f, body, err := cr.loadReceiptBody(q.Request, a.Flight)
	if f.State == flight.StateAbsent { // freed after the ledger's reply: the next open starts a new generation
		err = &effect.Busy{Key: a.Flight.Key, State: f.State, Proposed: true} // the open may have been proposed; see effect.InDoubt
	}
	if q.key = f.Key; err != nil {
		return nil, err
	}
	q.describe(f)
	if f.State == flight.StateExpired { // expired after the ledger's reply
		return nil, problemError{problem: noReceiptProblem(f)}
	}
	shown := wire.FlightOf(f, body, true)
	shown.Source, q.header[wire.HeaderReplayed] = effect.SourceReplayed.String(), headerTrue
	if a.Joined {
		shown.Source, q.header[wire.HeaderReplayed] = effect.SourceJoined.String(), headerFalse
	}
	if f.State == flight.StateSucceeded {
		return &wire.OpenAnswer{Decision: wire.DecisionReplay, Flight: shown, PolicyDiffers: a.PolicyDiffers, Policy: policyIfDifferent(f, a.PolicyDiffers)}, nil
	}
	p := failedProblem(f, shown)
	p.Decision = wire.DecisionReplay
	return nil, problemError{problem: p}
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

// verification records the finding of a caller at the provider, and answers as an open does.
func (cr *callRoutes) verification(q *Request, in *verificationOf) (*wire.OpenAnswer, error) {
	q.nonce = in.Nonce
	req, bad := cr.verificationRequest(q, in)
	if bad != nil {
		return nil, bad
	}
	if err := cr.mayReport(q.Request, req.ID); err != nil {
		return nil, err
	}
	defer cr.limits.CountVerification()()
	cr.setStillAllowed(q.Request, &req.Open) // Verify authenticates the sender again, after it has recorded the finding
	answer, err := cr.remote.Verify(q.Context(), req)
	q.key = cr.keyOf(q.Request, req.ID)
	return cr.openAnswer(q, &answer, err)
}

func (cr *callRoutes) verificationRequest(q *Request, in *verificationOf) (req remote.VerificationRequest, bad *wire.Invalid) {
	req.ID, req.Verification, req.ExternalID = in.Flight, in.Verification, in.ExternalID
	if req.Verification == "" {
		return req, wire.BadField("/verification", "missing; send the verification from the answer verify")
	}
	if req.Result, bad = wire.ParseFinding(in.Result); bad != nil {
		return req, bad
	}
	if req.Body, bad = in.Blob(); bad != nil {
		return req, bad
	}
	if req.Result != flight.FindingHappened && (req.ExternalID != "" || req.Body.Size > 0) {
		return req, receiptWithoutEffect()
	}
	opening, bad := in.Opening()
	cr.setOpening(q.Request, &req.Open, opening, in.Session, in.Owner)
	req.Open.Callback, req.Open.PublicURL = in.Callback, cr.publicURL
	return req, bad
}

// abandon gives up an open: no attempt stays open under its nonce.
func (cr *callRoutes) abandon(q *Request, in *wire.AbandonRequest) (*wire.AbandonAnswer, error) {
	q.nonce = in.Nonce
	ns, bad := namespace(q.Request)
	if bad == nil {
		q.key, bad = wire.KeyOrStep(ns, in.Action, in.ID)
	}
	switch {
	case bad != nil:
		return nil, bad
	case in.Nonce == "":
		return nil, wire.BadField("/nonce", "missing; send the nonce of the open")
	case in.NotAfter == 0:
		return nil, wire.BadField("/not_after", "missing; send the not_after of the open")
	}
	err := cr.remote.Abandon(q.Context(), remote.AbandonRequest{Key: q.key, Nonce: wire.NonceOf(in.Nonce), NotAfter: flight.Time(in.NotAfter),
		Error: auth.Redact(in.Reason)})
	return &wire.AbandonAnswer{Nonce: in.Nonce}, err
}

// receiptWithoutEffect is the error for a receipt together with a result other than happened: one of the two is wrong.
func receiptWithoutEffect() *wire.Invalid {
	bad := wire.BadField("/result", "external_id and body are allowed only with the result happened")
	bad.Hint = "set result to happened, or remove external_id and body"
	return bad
}
