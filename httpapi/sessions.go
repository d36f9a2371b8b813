package httpapi

import (
	"net/http"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// newSession serves POST /v1/sessions.
func (a *api) newSession(w http.ResponseWriter, r *http.Request) {
	body, bad := readBody(w, r, wire.MaxSmallBody)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	req, bad := wire.DecodeSession(body)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	ttl, bad := wire.TTL(req.TTLMS)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	answer, err := a.cfg.Sessions.NewSession(r.Context(), ttl, req.Owner)
	a.answerSession(w, r, http.StatusCreated, answer, err)
}

// renewSession serves POST /v1/sessions/{id}/renew.
func (a *api) renewSession(w http.ResponseWriter, r *http.Request) {
	body, bad := readBody(w, r, wire.MaxRenewBody)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	req, bad := wire.DecodeRenew(body)
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	var nonces []flight.Nonce
	if req.Nonces != nil {
		nonces = make([]flight.Nonce, len(req.Nonces))
		for i, n := range req.Nonces {
			nonces[i] = wire.NonceOf(n)
		}
	}
	seen, _ := flight.ParseVersion(req.Seen) // it is one, or not there
	answer, err := a.cfg.Sessions.Renew(r.Context(), flight.SessionID(r.PathValue("id")), executor.Renewal{Nonces: nonces, Seen: seen})
	a.answerSession(w, r, http.StatusOK, answer, err)
}

func (a *api) answerSession(w http.ResponseWriter, r *http.Request, status int, s executor.SessionAnswer, err error) {
	if err != nil {
		a.fail(w, r, flight.Key{}, err)
		return
	}
	out := wire.SessionAnswer{Session: string(s.Session), TrustMS: s.Trust.Milliseconds(), RenewEveryMS: s.RenewEvery.Milliseconds(),
		Version: s.Version.String()}
	for _, id := range s.CancelRequested {
		out.CancelRequested = append(out.CancelRequested, id.String())
	}
	send(w, r, status, typeJSON, out.AppendJSON)
}

// closeSession serves POST /v1/sessions/{id}/close.
func (a *api) closeSession(w http.ResponseWriter, r *http.Request) {
	body, bad := readBody(w, r, wire.MaxSmallBody)
	if bad == nil {
		bad = wire.DecodeEmpty(body)
	}
	if bad != nil {
		a.refuse(w, r, bad)
		return
	}
	if err := a.cfg.Sessions.CloseSession(r.Context(), flight.SessionID(r.PathValue("id"))); err != nil {
		a.fail(w, r, flight.Key{}, err)
		return
	}
	send(w, r, http.StatusOK, typeJSON, func(b []byte) []byte { return append(b, '{', '}') })
}
