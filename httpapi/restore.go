package httpapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// restoreRoutes serve backups and restores of the ledger.
type restoreRoutes struct {
	*flightWriter
	sagas    Sagas // nil if this node has no sagas
	restores Restores
	operator Operator
}

func (rr *restoreRoutes) routes() []declaration {
	return []declaration{
		route{pattern: "GET /v1/backup", serve: rr.backup, access: with(auth.Admin)},
		route{pattern: "GET /v1/restore", serve: rr.restoreState, access: with(auth.Operate | auth.Admin)},
		route{pattern: "GET /v1/restore/asked", serve: rr.restoreAsked, access: with(auth.Operate | auth.Admin), query: true},
		route{pattern: "POST /v1/restore:finish", serve: rr.finishRestore, access: with(auth.Admin)},
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

// ledgerEnd is the position after the flights of the ledger and before the other keys that callers have asked for. Positions among the
// flights have no slash; every full key has one.
const ledgerEnd = "/"

// restoreAsked serves GET /v1/restore/asked: the flights of the ledger that may run when the restore is finished, and then the requested
// keys that are not in the ledger.
func (rr *restoreRoutes) restoreAsked(w http.ResponseWriter, r *http.Request) error {
	after, limit, bad := parseAskedQuery(r)
	if denied := rr.mayRestore(r); denied != nil {
		bad = denied
	}
	out := wire.AskedPage{Keys: []string{}}
	var err error
	switch {
	case bad != nil:
		return bad
	case !rr.ledger.Header().Reconciling:
	case strings.Contains(after, "/"):
		err = rr.askedKeys(r, &out, after, limit)
	default:
		err = rr.knownKeys(&out, after, limit)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, r, http.StatusOK, &out)
}

// askedKeys adds the requested keys behind the key after that are not in the ledger.
func (rr *restoreRoutes) askedKeys(r *http.Request, out *wire.AskedPage, after string, limit int) error {
	keys, _ := rr.restores.Asked(after, limit)
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
		if f == nil || f.State == flight.StateAbsent {
			out.Keys = append(out.Keys, text)
		}
	}
	return nil
}

// knownKeys adds the flights behind the position after that have neither a receipt nor a doubt, and the steps of unfinished sagas. All
// steps of a saga are on one page.
func (rr *restoreRoutes) knownKeys(out *wire.AskedPage, after string, limit int) error {
	q := flight.Query{Limit: limit, States: []flight.State{flight.StateReady, flight.StateScheduled, flight.StateRunning, flight.StateWaiting, flight.StateAwaitingApproval}}
	if after != "" {
		b, err := hex.DecodeString(after)
		var bad *wire.Invalid
		if q.After, _, bad = decodeCursor(b); err != nil || bad != nil {
			return wire.BadParameter("after", "must be the next of an earlier page, unchanged")
		}
	}
	page, err := rr.flights.List(q)
	if err != nil {
		return err
	}
	out.Next = ledgerEnd
	if page.More {
		out.Next = hex.EncodeToString(encodeCursor(page.Next, 0))
	}
	for _, f := range page.Flights {
		switch {
		case f.Policy.Saga:
			if err := rr.addSteps(out, f); err != nil {
				return about(f.Key, err)
			}
		case !f.Key.IsStep():
			out.Keys = append(out.Keys, f.Key.String())
		}
		if len(out.Keys) >= limit {
			out.Next = hex.EncodeToString(encodeCursor(flight.Cursor{Created: f.CreatedAt, ID: f.ID}, 0))
			return nil
		}
	}
	return nil
}

// addSteps adds the steps of a saga that may run or may have run since the backup, and the undos if the saga was cancelled.
func (rr *restoreRoutes) addSteps(out *wire.AskedPage, f *flight.Flight) error {
	if rr.sagas == nil {
		return nil
	}
	def, v, err := rr.sagas.Flights(f)
	if err != nil {
		return err
	}
	add := func(step int, of *flight.Flight, undo bool) {
		if key, err := def.KeyOf(f.Key, step, undo); err == nil && (of == nil || !of.State.Terminal() && of.State != flight.StateInDoubt) {
			out.Keys = append(out.Keys, key.String())
		}
	}
	for i := range def.Steps {
		if def.Steps[i].Timer == 0 {
			add(i, v.Steps[i], false)
		}
		if f.Cancel != nil && def.Steps[i].Undo != nil && v.Steps[i] != nil && !v.Steps[i].Sealed {
			add(i, v.Undos[i], true)
		}
	}
	return nil
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
