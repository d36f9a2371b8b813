package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// Restores makes backups of the ledger, and lists the keys that callers have asked for since it was restored.
type Restores interface {
	// Backup writes a tar archive. After an error the archive is incomplete.
	Backup(ctx context.Context, w io.Writer) error
	// Asked returns up to limit keys that callers have asked for after a key, sorted, and how many there are in all.
	Asked(after string, limit int) (keys []string, total int)
}

// backup serves GET /v1/backup.
func (a *api) backup(w http.ResponseWriter, r *http.Request) {
	if bad := a.mayRestore(r); bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // the read deadline of the server is for ordinary requests
	out := &pacedWriter{ResponseWriter: w, control: control}
	switch err := a.cfg.Restores.Backup(r.Context(), out); {
	case err == nil:
	case !out.begun:
		a.writeError(w, r, flight.Key{}, err)
	default:
		a.log.Warn("a backup was not completed", "error", err)
		panic(http.ErrAbortHandler) // the reader must not take the archive for a complete one
	}
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
func (a *api) restoreState(w http.ResponseWriter, r *http.Request) {
	if bad := a.mayRestore(r); bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	state := a.restoreOf()
	a.writeJSON(w, r, http.StatusOK, &state)
}

func (a *api) restoreOf() wire.Restore {
	h := a.cfg.Ledger.Header()
	out := wire.Restore{Reconciling: h.Reconciling, StoreEpoch: h.StoreEpoch}
	if h.Reconciling {
		out.HoldUntil = wireTime(h.EpochHold)
		out.HoldMS = max(0, h.EpochHold.Until(a.cfg.Ledger.Now()).Milliseconds())
	}
	_, out.Asked = a.cfg.Restores.Asked("", 0)
	return out
}

// restoreAsked serves GET /v1/restore/asked.
func (a *api) restoreAsked(w http.ResponseWriter, r *http.Request) {
	after, limit, bad := parseAskedQuery(r)
	if denied := a.mayRestore(r); denied != nil {
		bad = denied
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	keys, _ := a.cfg.Restores.Asked(after, limit)
	out := wire.AskedPage{Keys: []string{}}
	if len(keys) == limit {
		out.Next = keys[len(keys)-1]
	}
	for _, text := range keys {
		key, err := flight.ParseKey(text)
		var f *flight.Flight
		if err == nil {
			f, err = a.flightOf(r, key.FlightID(), key)
		}
		if err != nil {
			a.writeError(w, r, key, err)
			return
		}
		if f == nil || !f.State.Terminal() && f.State != flight.StateInDoubt {
			out.Keys = append(out.Keys, text)
		}
	}
	a.writeJSON(w, r, http.StatusOK, &out)
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
func (a *api) finishRestore(w http.ResponseWriter, r *http.Request) {
	bad := a.mayRestore(r)
	var body []byte
	if bad == nil {
		body, bad = a.receiveBody(w, r, wire.MaxSmallBody)
	}
	var req wire.FinishRestore
	if bad == nil {
		req, bad = wire.DecodeFinishRestore(body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	reply, err := a.cfg.Operator.Propose(r.Context(), &flight.FinishRestore{Epoch: a.cfg.Ledger.Header().StoreEpoch, Force: req.Force, Actor: d.actor, Reason: d.reason})
	switch {
	case err != nil:
		a.writeError(w, r, flight.Key{}, err)
	case reply.Decision == flight.DecisionAccepted:
		state := a.restoreOf()
		a.writeJSON(w, r, http.StatusOK, &state)
	case reply.Decision == flight.DecisionBusy:
		a.writeInvalid(w, r, &wire.Invalid{Code: wire.PreconditionFailed, Hint: "wait until the hold is over, or pass --force if you know that every caller of the lost ledger is dead",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("callers of the ledger that was lost may still act: the hold lasts %v more", reply.Wait.Round(time.Second))}})
	default:
		a.writeError(w, r, flight.Key{}, errors.New("httpapi: unexpected decision "+reply.Decision.String()))
	}
}

// mayRestore rejects a token of one namespace: backups and restores concern all.
func (a *api) mayRestore(r *http.Request) *wire.Invalid {
	if a.cfg.Restores == nil {
		return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server makes no backups"}}
	}
	if boundCaller(r) == nil {
		return nil
	}
	return &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
		Detail: "a token of one namespace cannot back up or restore the ledger"}}
}
