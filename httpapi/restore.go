package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// restoreRoutes serve backups and restores of the ledger.
type restoreRoutes struct {
	*responder
	restores Restores
	operator Operator
}

func (rr *restoreRoutes) routes() map[string]route {
	return map[string]route{
		"GET /v1/backup":          {serve: rr.backup, access: with(auth.Admin)},
		"GET /v1/restore":         {serve: rr.restoreState, access: with(auth.Operate | auth.Admin)},
		"GET /v1/restore/asked":   {serve: rr.restoreAsked, access: with(auth.Operate | auth.Admin), query: true},
		"POST /v1/restore:finish": {serve: rr.finishRestore, access: with(auth.Admin)},
	}
}

// backup serves GET /v1/backup.
func (rr *restoreRoutes) backup(w http.ResponseWriter, r *http.Request) error {
	if bad := rr.mayRestore(r); bad != nil {
		return bad
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the read deadline of the server is for ordinary requests
	out := &pacedWriter{ResponseWriter: w, control: control}
	switch err := rr.restores.Backup(r.Context(), out); {
	case err == nil:
	case !out.begun:
		return err
	default:
		rr.log.Warn("a backup was not completed", "error", err)
		panic(http.ErrAbortHandler) // the reader must not take the archive for a complete one
	}
	return nil
}

// pacedWriter gives each write its own deadline: a backup may take hours, and a reader that reads nothing must not hold it.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (p *pacedWriter) Write(b []byte) (int, error) {
	if !p.begun {
		p.begun = true
		p.Header().Set("Content-Type", wire.TypeTar)
		p.WriteHeader(http.StatusOK)
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	return p.ResponseWriter.Write(b)
}

// restoreState serves GET /v1/restore.
func (rr *restoreRoutes) restoreState(w http.ResponseWriter, r *http.Request) error {
	if bad := rr.mayRestore(r); bad != nil {
		return bad
	}
	state := rr.restoreOf()
	return writeJSON(w, r, http.StatusOK, &state)
}

func (rr *restoreRoutes) restoreOf() wire.Restore {
	h := rr.ledger.Header()
	out := wire.Restore{Reconciling: h.Reconciling, StoreEpoch: h.StoreEpoch}
	if h.Reconciling {
		out.HoldUntil = wireTime(h.EpochHold)
		out.HoldMS = max(0, h.EpochHold.Until(rr.ledger.Now()).Milliseconds())
	}
	_, out.Asked = rr.restores.Asked("", 0)
	return out
}

// restoreAsked serves GET /v1/restore/asked.
func (rr *restoreRoutes) restoreAsked(w http.ResponseWriter, r *http.Request) error {
	after, limit, bad := parseAskedQuery(r)
	if denied := rr.mayRestore(r); denied != nil {
		bad = denied
	}
	if bad != nil {
		return bad
	}
	keys, _ := rr.restores.Asked(after, limit)
	out := wire.AskedPage{Keys: []string{}}
	if len(keys) == limit {
		out.Next = keys[len(keys)-1]
	}
	for _, text := range keys {
		key, err := flight.ParseKey(text)
		var f *flight.Flight
		if err == nil {
			f, err = rr.flightOf(r, key.FlightID(), key)
		}
		if err != nil {
			return about(key, err)
		}
		if f == nil || !f.State.Terminal() && f.State != flight.StateInDoubt {
			out.Keys = append(out.Keys, text)
		}
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

func parseAskedQuery(r *http.Request) (after string, limit int, bad *wire.Invalid) {
	limit = maxPage
	params, bad := queryParameters(r)
	if bad != nil {
		return "", 0, bad
	}
	for name, values := range params {
		if len(values) > 1 {
			return "", 0, duplicateParameter(name)
		}
		switch name {
		case "after":
			after = values[0]
		case "limit":
			var err error
			if limit, err = strconv.Atoi(values[0]); err != nil || limit < 1 || limit > maxPage {
				return "", 0, wire.BadParameter(name, "must be from 1 to %d", maxPage)
			}
		default:
			return "", 0, wire.BadParameter(name, "unknown parameter; allowed: after, limit")
		}
	}
	return after, limit, nil
}

// finishRestore serves POST /v1/restore:finish.
func (rr *restoreRoutes) finishRestore(w http.ResponseWriter, r *http.Request) error {
	bad := rr.mayRestore(r)
	var req wire.FinishRestore
	if bad == nil {
		req, bad = receive(rr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.FinishRestore])
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		return bad
	}
	reply, err := rr.operator.Propose(r.Context(), &flight.FinishRestore{Epoch: rr.ledger.Header().StoreEpoch, Force: req.Force, Actor: d.actor, Reason: d.reason})
	switch {
	case err != nil:
		return err
	case reply.Decision == flight.DecisionAccepted:
		state := rr.restoreOf()
		return writeJSON(w, r, http.StatusOK, &state)
	case reply.Decision == flight.DecisionBusy:
		return &wire.Invalid{Code: wire.PreconditionFailed, Hint: "wait until the hold is over, or pass --force if you know that every caller of the lost ledger is dead",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("callers of the ledger that was lost may still act: the hold lasts %v more", reply.Wait.Round(time.Second))}}
	default:
		return errors.New("httpapi: unexpected decision " + reply.Decision.String())
	}
}

// mayRestore rejects a token of one namespace: backups and restores concern all.
func (rr *restoreRoutes) mayRestore(r *http.Request) *wire.Invalid {
	if rr.restores == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server makes no backups"}}
	}
	if boundCaller(r) == nil {
		return nil
	}
	return &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
		Detail: "a token of one namespace cannot back up or restore the ledger"}}
}
