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

// sessionPath names a session by its sealed id.
type sessionPath struct {
	Session string `json:"-" path:"id"`
}

// renewal is a renewal of a session.
type renewal struct {
	sessionPath
	wire.RenewRequest
}

func (sr *sessionRoutes) routes() []declaration {
	access := with(auth.Submit | auth.Work)
	return []declaration{
		Endpoint[wire.SessionRequest, wire.SessionAnswer]{Pattern: "POST /v1/sessions", Place: Leader,
			Access: access, Body: wire.MaxSmallBody, Serve: sr.open},
		Endpoint[renewal, wire.SessionAnswer]{Pattern: "POST /v1/sessions/{id}/renew", Place: Renewal,
			Access: access, Body: wire.MaxSmallBody, Serve: sr.renew},
		Endpoint[sessionPath, struct{}]{Pattern: "POST /v1/sessions/{id}/close", Place: Leader, Access: access, Body: wire.MaxSmallBody, Serve: sr.close},
	}
}

func (sr *sessionRoutes) open(q *Request, in *wire.SessionRequest) (*wire.SessionAnswer, error) {
	ttl, bad := wire.TTL(in.TTLMS)
	if bad != nil {
		return nil, bad
	}
	ns, bad := namespace(q.Request)
	if bad != nil {
		ns = wire.DefaultNamespace // a session has no namespace, so a token of all of them may send any header
	}
	if err := sr.limits.AllowSession(ns); err != nil {
		return nil, err
	}
	answer, err := sr.sessions.NewSession(q.Context(), ttl, auth.Redact(in.Owner))
	q.answerWith(http.StatusCreated)
	return sr.answer(q, in.Nonce, answer, err)
}

func (sr *sessionRoutes) renew(q *Request, in *renewal) (*wire.SessionAnswer, error) {
	id, err := sr.ownSession(q, in.Session)
	if err != nil {
		return nil, err
	}
	request := remote.RenewRequest{OpenDigest: in.OpenDigest}
	request.After, _ = flight.ParseID(in.After) // its form was checked when it was read
	answer, err := sr.sessions.Renew(q.Context(), id, request)
	return sr.answer(q, "", answer, err)
}

func (sr *sessionRoutes) answer(q *Request, nonce string, s remote.SessionAnswer, err error) (*wire.SessionAnswer, error) {
	if err != nil {
		return nil, err
	}
	out := wire.SessionAnswer{Session: sr.sealSession(q.Request, s.Session), Nonce: nonce, TrustMS: s.Trust.Milliseconds(), RenewEveryMS: s.RenewEvery.Milliseconds(),
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
	return &out, nil
}

func (sr *sessionRoutes) close(q *Request, in *sessionPath) (*struct{}, error) {
	id, err := sr.ownSession(q, in.Session)
	if err == nil {
		err = sr.sessions.CloseSession(q.Context(), id)
	}
	return &struct{}{}, err
}

// ownSession returns the session that a request names. If it was not sealed for the sender, the error is that of a session that does
// not exist. Problems name the session as the sender wrote it: the end of another session must not end a renewal.
func (sr *sessionRoutes) ownSession(q *Request, sealed string) (flight.SessionID, error) {
	q.session = sealed
	id := sr.unsealSession(q.Request, sealed)
	if id == unknownSession && callerOf(q.Request) != nil {
		return id, &effect.LeaseLost{}
	}
	return id, nil
}
