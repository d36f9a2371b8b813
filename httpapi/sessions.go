package httpapi

import (
	"encoding/hex"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// newSession serves POST /v1/sessions.
func (a *api) newSession(w http.ResponseWriter, r *http.Request) {
	body, bad := a.receiveBody(w, r, wire.MaxSmallBody)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	req, bad := wire.DecodeSession(body)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	ttl, bad := wire.TTL(req.TTLMS)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	ns, bad := namespace(r)
	if bad != nil {
		ns = wire.DefaultNamespace // a session has no namespace, so a token of all of them may send any header
	}
	if err := a.limits.AllowSession(ns); err != nil {
		a.writeError(w, r, flight.Key{}, err)
		return
	}
	answer, err := a.cfg.Remote.NewSession(r.Context(), ttl, auth.Redact(req.Owner))
	a.writeSession(w, r, http.StatusCreated, req.Nonce, answer, err)
}

// renewSession serves POST /v1/sessions/{id}/renew.
func (a *api) renewSession(w http.ResponseWriter, r *http.Request) {
	body, bad := a.receiveBody(w, r, wire.MaxSmallBody)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	req, bad := wire.DecodeRenew(body)
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	renewal := remote.RenewRequest{OpenDigest: req.OpenDigest}
	if req.After != "" {
		renewal.After, _ = flight.ParseID(req.After) // DecodeRenew has validated it
	}
	id, ok := a.ownSession(w, r)
	if !ok {
		return
	}
	answer, err := a.cfg.Remote.Renew(r.Context(), id, renewal)
	a.writeSession(w, r, http.StatusOK, "", answer, err)
}

func (a *api) writeSession(w http.ResponseWriter, r *http.Request, status int, nonce string, s remote.SessionAnswer, err error) {
	if err != nil {
		a.writeSessionError(w, r, err)
		return
	}
	out := wire.SessionAnswer{Session: a.sealSession(r, s.Session), Nonce: nonce, TrustMS: s.Trust.Milliseconds(), RenewEveryMS: s.RenewEvery.Milliseconds(),
		OpenDigest: s.OpenDigest, More: s.More}
	if out.OpenDigest == "" {
		out.OpenDigest = wire.OpenDigest(nil) // a new session has no open attempts
	}
	for _, id := range s.CancelRequested {
		out.CancelRequested = append(out.CancelRequested, id.String())
	}
	for i := range s.Open {
		o := &s.Open[i]
		out.Open = append(out.Open, wire.OpenAttempt{Key: o.Key.String(), FlightID: o.FlightID.String(), Nonce: hex.EncodeToString(o.Nonce[:]),
			Attempt: o.Number, FencingToken: o.FencingToken})
	}
	writeResponse(w, r, status, typeJSON, out.AppendJSON)
}

// closeSession serves POST /v1/sessions/{id}/close.
func (a *api) closeSession(w http.ResponseWriter, r *http.Request) {
	body, bad := a.receiveBody(w, r, wire.MaxSmallBody)
	if bad == nil {
		bad = wire.DecodeEmpty(body)
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	id, ok := a.ownSession(w, r)
	if !ok {
		return
	}
	if err := a.cfg.Remote.CloseSession(r.Context(), id); err != nil {
		a.writeSessionError(w, r, err)
		return
	}
	writeEmpty(w, r)
}

// ownSession returns the session in the path. If it was not sealed for the sender, ownSession has answered as for a
// session that does not exist, and returns false.
func (a *api) ownSession(w http.ResponseWriter, r *http.Request) (flight.SessionID, bool) {
	id := a.unsealSession(r, r.PathValue("id"))
	if id == unknownSession && callerOf(r) != nil {
		a.writeSessionError(w, r, &effect.LeaseLost{})
		return id, false
	}
	return id, true
}

// writeSessionError answers with the problem of an error. The problem names the session in the path, as the sender wrote it:
// the end of another session must not end a renewal.
func (a *api) writeSessionError(w http.ResponseWriter, r *http.Request, err error) {
	a.writeNamedError(w, r, flight.Key{}, "", r.PathValue("id"), err)
}

// writeEmpty answers 200 with an empty object.
func writeEmpty(w http.ResponseWriter, r *http.Request) {
	writeResponse(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, '{', '}') })
}
