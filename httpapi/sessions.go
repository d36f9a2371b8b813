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

// sessionRoutes serve the sessions of callers that perform effects themselves.
type sessionRoutes struct {
	*responder
	sessions Sessions
	limits   *auth.Limiter
}

func (sr *sessionRoutes) routes() map[string]route {
	access := with(auth.Submit | auth.Work)
	return map[string]route{
		"POST /v1/sessions":            {serve: sr.newSession, access: access},
		"POST /v1/sessions/{id}/renew": {serve: sr.renewSession, access: access},
		"POST /v1/sessions/{id}/close": {serve: sr.closeSession, access: access},
	}
}

// newSession serves POST /v1/sessions.
func (sr *sessionRoutes) newSession(w http.ResponseWriter, r *http.Request) error {
	req, bad := receive(sr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.SessionRequest])
	if bad != nil {
		return bad
	}
	ttl, bad := wire.TTL(req.TTLMS)
	if bad != nil {
		return bad
	}
	ns, bad := namespace(r)
	if bad != nil {
		ns = wire.DefaultNamespace // a session has no namespace, so a token of all of them may send any header
	}
	if err := sr.limits.AllowSession(ns); err != nil {
		return err
	}
	answer, err := sr.sessions.NewSession(r.Context(), ttl, auth.Redact(req.Owner))
	return sr.writeSession(w, r, http.StatusCreated, req.Nonce, answer, err)
}

// renewSession serves POST /v1/sessions/{id}/renew.
func (sr *sessionRoutes) renewSession(w http.ResponseWriter, r *http.Request) error {
	req, bad := receive(sr.receiveBody, w, r, wire.MaxSmallBody, wire.DecodeRenew)
	if bad != nil {
		return bad
	}
	renewal := remote.RenewRequest{OpenDigest: req.OpenDigest}
	if req.After != "" {
		renewal.After, _ = flight.ParseID(req.After) // DecodeRenew has validated it
	}
	id, err := sr.ownSession(r)
	if err != nil {
		return err
	}
	answer, err := sr.sessions.Renew(r.Context(), id, renewal)
	return sr.writeSession(w, r, http.StatusOK, "", answer, err)
}

func (sr *sessionRoutes) writeSession(w http.ResponseWriter, r *http.Request, status int, nonce string, s remote.SessionAnswer, err error) error {
	if err != nil {
		return aboutSession(r, err)
	}
	out := wire.SessionAnswer{Session: sr.sealSession(r, s.Session), Nonce: nonce, TrustMS: s.Trust.Milliseconds(), RenewEveryMS: s.RenewEvery.Milliseconds(),
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
	return writeJSON(w, r, status, &out)
}

// closeSession serves POST /v1/sessions/{id}/close.
func (sr *sessionRoutes) closeSession(w http.ResponseWriter, r *http.Request) error {
	body, bad := sr.receiveBody(w, r, wire.MaxSmallBody)
	if bad == nil {
		bad = wire.DecodeEmpty(body)
	}
	if bad != nil {
		return bad
	}
	id, err := sr.ownSession(r)
	if err != nil {
		return err
	}
	if err := sr.sessions.CloseSession(r.Context(), id); err != nil {
		return aboutSession(r, err)
	}
	writeEmpty(w, r)
	return nil
}

// ownSession returns the session in the path. If it was not sealed for the sender, the error is that of a session that does
// not exist.
func (sr *sessionRoutes) ownSession(r *http.Request) (flight.SessionID, error) {
	id := sr.unsealSession(r, r.PathValue("id"))
	if id == unknownSession && callerOf(r) != nil {
		return id, aboutSession(r, &effect.LeaseLost{})
	}
	return id, nil
}

// aboutSession returns an error whose problem names the session in the path, as the sender wrote it: the end of another session
// must not end a renewal.
func aboutSession(r *http.Request, err error) error {
	return named{error: err, session: r.PathValue("id")}
}

// writeEmpty answers 200 with an empty object.
func writeEmpty(w http.ResponseWriter, r *http.Request) {
	writeResponse(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, '{', '}') })
}
