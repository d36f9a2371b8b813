package node

import (
	"context"
	"errors"
	"io"
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
	l := ledgerAPI{ledger{n.store}, &n.events}
	cfg := httpapi.Config{
		Remote: n.remote, Ledger: l, Feed: l, Duplicates: l, Operator: l, Documents: n.store, Restores: n, Limits: n.limits, Ready: n.readiness, LedgerInfo: n.ledgerInfo, NodeInfo: n.about, Logger: n.cfg.Logger,
		LoopbackOnly: n.cfg.NoCredentials, MaxStreams: n.cfg.tuning.connections / 2,
		Version: wire.Version{Version: n.cfg.Version, Deployment: n.store.Header().Deployment},
	}
	if n.cfg.NoCredentials {
		cfg.Metrics = n.metrics.Handler()
	} else { // metrics are served by Config.ListenMetrics only
		cfg.Auth = n.tokens
	}
	return httpapi.New(cfg)
}

// Backup implements httpapi.Restores.
func (n *node) Backup(ctx context.Context, w io.Writer) error {
	return n.store.Backup(ctx, n.cfg.Version, w)
}

// Asked implements httpapi.Restores.
func (n *node) Asked(after string, limit int) (keys []string, total int) {
	return n.asked.page(after, limit)
}

// ledgerAPI adapts the ledger to the ports of package httpapi: reads, the feed, and the decisions of operators.
type ledgerAPI struct {
	ledger
	events *executor.Events
}

var (
	_ httpapi.Ledger           = ledgerAPI{}
	_ httpapi.Operator         = ledgerAPI{}
	_ httpapi.Feed             = ledgerAPI{}
	_ httpapi.DuplicateCounter = ledgerAPI{}
)

// Propose implements httpapi.Operator, with the errors of package effect.
func (a ledgerAPI) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	reply, err := a.ledger.Propose(ctx, c)
	a.events.Publish(c.Target(), reply.Events)
	return reply, operatorError(ctx, err)
}

// ProposeAll implements httpapi.Operator, with the errors of package effect.
func (a ledgerAPI) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	replies, err := a.Store.ProposeAll(ctx, all)
	for i := range replies {
		a.events.Publish(all[i].Target(), replies[i].Events)
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
	case errors.Is(err, executor.ErrAmbiguous), errors.Is(err, clusterstore.ErrNotLeader), errors.Is(err, clusterstore.ErrUnavailable),
		errors.Is(err, clusterstore.ErrFeatureLevel):
		return &effect.Unavailable{Code: string(wire.NoLeader), Cause: err}
	}
	return err
}
