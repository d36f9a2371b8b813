package httpapi

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
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
		Endpoint[struct{}, wire.Restore]{Pattern: "GET /v1/restore", Access: with(auth.Operate | auth.Admin), Serve: rr.state},
		Endpoint[askedQuery, wire.AskedPage]{Pattern: "GET /v1/restore/asked", Access: with(auth.Operate | auth.Admin), Serve: rr.asked},
		Endpoint[wire.FinishRestore, wire.Restore]{Pattern: "POST /v1/restore:finish",
			Access: with(auth.Admin), Body: wire.MaxSmallBody, Serve: rr.finish},
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

// state describes a restore.
func (rr *restoreRoutes) state(q *Request, _ *struct{}) (*wire.Restore, error) {
	if bad := rr.mayRestore(q.Request); bad != nil {
		return nil, bad
	}
	state := rr.restoreOf()
	return &state, nil
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

// askedQuery selects a page of keys.
type askedQuery struct {
	After string         `query:"after"`
	Limit limitParameter `query:"limit"`
}

// asked returns the flights of the ledger that may run when the restore is finished, and then the requested keys that are not in the
// ledger.
func (rr *restoreRoutes) asked(q *Request, in *askedQuery) (*wire.AskedPage, error) {
	if bad := rr.mayRestore(q.Request); bad != nil {
		return nil, bad
	}
	out := &wire.AskedPage{Keys: []string{}}
	switch limit := in.Limit.or(maxPage); {
	case !rr.ledger.Header().Reconciling:
		return out, nil
	case strings.Contains(in.After, "/"):
		return out, rr.askedKeys(q.Request, out, in.After, limit)
	default:
		return out, rr.knownKeys(out, in.After, limit)
	}
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

// finish lets flights open again.
func (rr *restoreRoutes) finish(q *Request, in *wire.FinishRestore) (*wire.Restore, error) {
	if bad := rr.mayRestore(q.Request); bad != nil {
		return nil, bad
	}
	who, why, bad := attribution(q.Request, in.Actor, in.Reason)
	if bad != nil {
		return nil, bad
	}
	reply, err := rr.operator.Propose(q.Context(), &flight.FinishRestore{Epoch: rr.ledger.Header().StoreEpoch, Force: in.Force, Actor: who, Reason: why})
	switch {
	case err != nil:
		return nil, err
	case reply.Decision == flight.DecisionAccepted:
		state := rr.restoreOf()
		return &state, nil
	case reply.Decision == flight.DecisionBusy:
		return nil, &wire.Invalid{Code: wire.PreconditionFailed, Hint: "wait until the hold is over, or pass --force if you know that every caller of the lost ledger is dead",
			FieldError: wire.FieldError{Detail: fmt.Sprintf("callers of the ledger that was lost may still act: the hold lasts %v more", reply.Wait.Round(time.Second))}}
	}
	return nil, errors.New("httpapi: unexpected decision " + reply.Decision.String())
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
