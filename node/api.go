package node

import (
	"context"
	"errors"
	"net/http"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/internal/wire"
)

// api returns the handler of the API.
func (n *node) api() http.Handler {
	book := door{ledger{n.store}, &n.events}
	return httpapi.New(httpapi.Config{
		Remote: n.remote, Ledger: book, Feed: book, Tallies: book, Operator: book, Ready: n.readiness, About: n.about, Dev: true, Logger: n.cfg.Logger,
		Metrics: n.metrics.Handler(),
		Version: wire.Version{Version: n.cfg.Version, Deployment: n.store.Header().Deployment},
	})
}

// ledgerAPI adapts the ledger to the ports of package httpapi: reads, the feed, and the decisions of operators.
type door struct {
	ledger
	events *executor.Events
}

var (
	_ httpapi.Ledger   = door{}
	_ httpapi.Operator = door{}
	_ httpapi.Feed     = door{}
	_ httpapi.Tallies  = door{}
)

// List implements httpapi.Ledger.
func (d door) List(q httpapi.Query) (httpapi.Page, error) {
	page, err := d.Store.List(clusterstore.Query{
		States: q.States, Namespace: q.Namespace, Name: q.Name, Prefix: q.Prefix, Since: q.Since,
		After: clusterstore.Cursor(q.After), Limit: q.Limit,
	})
	return httpapi.Page{Flights: page.Flights, Next: httpapi.Cursor(page.Next), More: page.More}, err
}

// History implements httpapi.Ledger.
func (d door) History(id flight.ID) ([]httpapi.Event, error) {
	history, err := d.Store.History(id)
	events := make([]httpapi.Event, len(history))
	for i, e := range history {
		events[i] = httpapi.Event(e)
	}
	return events, err
}

// Propose implements httpapi.Operator, with the errors of package effect.
func (d door) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	reply, err := d.ledger.Propose(ctx, c)
	d.events.Note(c.Target(), reply.Events)
	return reply, operatorError(ctx, err)
}

// ProposeAll implements httpapi.Operator, with the errors of package effect.
func (d door) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	replies, err := d.Store.ProposeAll(ctx, all)
	for i := range replies {
		d.events.Note(all[i].Target(), replies[i].Events)
	}
	return replies, operatorError(ctx, ledgerError(err))
}

func operatorError(ctx context.Context, err error) error {
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.Is(err, clusterstore.ErrTooLarge):
		return &flight.InvalidError{Field: "body", Detail: "larger than the ledger accepts"}
	case errors.Is(err, clusterstore.ErrClosed):
		return &effect.Unavailable{Code: string(wire.Draining), Cause: err}
	case errors.Is(err, executor.ErrAmbiguous), errors.Is(err, clusterstore.ErrNotLeader), errors.Is(err, clusterstore.ErrUnavailable):
		return &effect.Unavailable{Code: string(wire.NoLeader), Cause: err}
	}
	return err
}
