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
	if errors.As(err, &fenced) { // nothing was started: the caller may open again
		p := problemOf(err)
		p.Detail = "this open has had its attempt, and that is over"
		p.Hint = "do not act for it; open again with a new nonce, and do what the answer says"
		a.answer(w, r, p, nil)
		return
	}
	a.answerOpen(w, r, req.Key, nonce, answer, err)
}

// openRequest reads an open, and gives its nonce as the caller wrote it.
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

// keyFrom is the key of a request that names action and id in its body, and the namespace in a header.
func keyFrom(r *http.Request, action, id string) (flight.Key, *wire.Invalid) {
	ns, bad := namespace(r)
	if bad != nil {
		return flight.Key{}, bad
	}
	return wire.Key(ns, action, id)
}

// name sets the nonce of an open, and until when it may open an attempt. A caller without a nonce cannot repeat the open,
// so its copies need no common bound.
func name(req *remote.OpenRequest, nonce string, notAfter int64) *wire.Invalid {
	if nonce == "" {
		_, _ = rand.Read(req.Nonce[:]) // it never fails: it ends the program first
		req.Unnamed = true
		if notAfter != 0 {
			bad := wire.BadField("/not_after", "an open without a nonce has no not_after")
			bad.Hint = "send a nonce, drawn at random for this open, or leave not_after out"
			return bad
		}
		return nil
	}
	req.Nonce, req.NotAfter = wire.NonceOf(nonce), flight.Time(notAfter)
	return nil
}

// sameKey refuses an Idempotency-Key that is not the flight's. Whoever sends another one counts on it, and the key of a
// flight comes from the body alone. It may be bare, or quoted as a string of RFC 8941.
func sameKey(given []string, key flight.Key) *wire.Invalid {
	for _, g := range given {
		ours := func(word string) bool { return g == word || g == `"`+quoting.Replace(word)+`"` }
		if !ours(key.BusinessID()) && !ours(key.String()) {
			return &wire.Invalid{Code: wire.KeyInvalid, Hint: "action and id name the business intent, and no other key counts: leave the header out, or send the id in it",
				FieldError: wire.FieldError{Header: effect.HeaderIdempotencyKey, Detail: fmt.Sprintf("it is neither the id nor the key of this flight, %s", key)}}
		}
	}
	return nil
}

var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// answerOpen writes what an open or a verdict was answered. Only proceed means act, and only it is a 201.
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

// clear lets the caller act, or look.
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

// standing is the policy of a flight, where that is not its caller's.
func standing(f *flight.Flight, differs bool) *wire.Policy {
	if !differs {
		return nil
	}
	policy := wire.PolicyOf(f.Policy)
	return &policy
}

// replay gives the stored outcome. One that is no success is a 424, so that no client takes it for one.
func (a *api) replay(w http.ResponseWriter, r *http.Request, o remote.OpenAnswer) {
	f, body, err := a.whole(o.Flight)
	if f.State == flight.Absent { // freed since the answer was given: the next open is the key's first one
		err = &effect.Busy{Key: o.Flight.Key, State: f.State, Proposed: true} // it may have been; see effect.InDoubt
	}
	if err != nil {
		a.fail(w, r, f.Key, err)
		return
	}
	h := w.Header()
	describe(h, f)
	if f.State == flight.Expired { // since the answer was given
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

// failed is the problem that a flight is which ended, and is no success.
func failed(f *flight.Flight, shown *wire.Flight) *wire.Problem {
	p := about(wire.FlightFailed, f.Key, 0)
	p.State, p.Detail, p.Flight = f.State.String(), failure(f), shown
	if !f.Reopenable() {
		p.Hint = "the answer is final and every repeat gets it; another try is a new intent with an id of its own"
	}
	return p
}

// failure says in a few words why a flight is no success.
func failure(f *flight.Flight) string {
	switch {
	case f.Receipt != nil:
		return "the provider refused"
	case f.Cause != "":
		return f.Cause
	}
	return "it is " + f.State.String()
}

// verdict serves POST /v1/flights/{id}/verdict.
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
		return req, "", wire.BadField("/probe", "it is missing")
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
		return req, wire.BadField("/nonce", "it is missing; send the nonce of the open")
	case abandon.NotAfter == 0:
		return req, wire.BadField("/not_after", "it is missing; send the not_after of the open")
	}
	req.Nonce, req.NotAfter, req.Error = wire.NonceOf(abandon.Nonce), flight.Time(abandon.NotAfter), abandon.Reason
	return req, nil
}

// onlyWhatHappened refuses a receipt of what did not happen, or of what nobody knows: one of the two words is wrong.
func onlyWhatHappened() *wire.Invalid {
	bad := wire.BadField("/result", "only an effect that happened has a receipt")
	bad.Hint = "say happened, or leave external_id and body out"
	return bad
}
