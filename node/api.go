package node

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// api returns the handler of the API.
func (a *actor) api() http.Handler {
	cfg := a.apiConfig()
	if a.cluster != nil {
		cfg.Cluster.ReplaceAnswer = a.replaceAnswer
	}
	return a.traces.Calls(httpapi.New(cfg), a.store, false)
}

func (a *actor) apiConfig() httpapi.Config {
	m := monitor{a.node}
	cfg := httpapi.Config{
		Remote: a.remote, Ledger: a.store, Operator: operator{a.store, &a.events}, Documents: a.store, Restores: a.node, Logger: a.cfg.Logger,
		Events:  httpapi.Events{Feed: a.store.Feed(), Duplicates: a.store, MaxStreams: a.cfg.tuning.connections / 2},
		Callers: httpapi.Callers{TokenTime: a.store.UpperTime, Limits: a.limits, LoopbackOnly: a.cfg.NoCredentials && a.cluster == nil},
		Cluster: httpapi.Cluster{State: m.clusterState, RaiseLeaseEpoch: a.raiseIfRegressed, LedgerBehind: a.ledgerBehind},
		About: httpapi.About{Version: wire.Version{Version: a.cfg.Process.Version, Deployment: a.store.Header().Deployment},
			Ready: m.readiness, Ledger: func(figures bool) wire.LedgerInfo { return ledgerInfo(a.store, figures) }, Node: m.about},
	}
	if a.notify != nil {
		cfg.Notify = a.notify
	}
	if a.pools != nil {
		cfg.Work = httpapi.Work{Pools: a.pools, Sagas: a.sagas}
	}
	cfg.Callers.PublicURL = a.publicURL()
	if a.cluster != nil {
		cfg.Cluster.AwaitNodes, cfg.Cluster.ReplaceNode = a.awaitApplied, a.beginReplacement
	}
	if a.traces != nil {
		cfg.Callers.Traces = true
		cfg.Callers.Lines = func(lines http.Handler) http.Handler { return a.traces.Calls(lines, a.store, false) }
	}
	if a.cfg.NoCredentials {
		cfg.About.Metrics = a.metrics.Handler()
	} else { // metrics are served by Config.Listen.Metrics only
		cfg.Callers.Auth = a.tokens
	}
	return cfg
}

// publicURL returns Config.Listen.PublicURL, or its default.
func (n *node) publicURL() string {
	if n.cfg.Listen.PublicURL == "" && n.cfg.NoCredentials {
		return n.server.url()
	}
	return n.cfg.Listen.PublicURL
}

// Backup implements httpapi.Restores.
func (n *node) Backup(ctx context.Context, w io.Writer) error {
	err := n.store.Backup(ctx, n.cfg.Process.Version, w)
	if err == nil {
		n.backedUp.Store(time.Now().UnixMilli())
	}
	return err
}

// lastBackup returns when the last backup ended that this process has sent; zero: it has sent none.
func (n *node) lastBackup() wire.Time {
	if at := n.backedUp.Load(); at > 0 {
		return wire.Time{Time: time.UnixMilli(at)}
	}
	return wire.Time{}
}

// Asked implements httpapi.Restores.
func (n *node) Asked(after string, limit int) (keys []string, total int) {
	return n.asked.Load().page(after, limit)
}

// ledgerBehind reports whether this ledger, which leads, does not reach a position that a caller was told, and says so.
func (a *actor) ledgerBehind(ctx context.Context, told wire.Index) (bool, error) {
	if a.cluster != nil {
		if err := a.check.stillLeads(ctx); err != nil {
			return false, &effect.Unavailable{Code: string(wire.LeaderLost), Cause: err}
		}
	}
	h := a.store.Header()
	has := wire.Index{Epoch: h.StoreEpoch, Entry: h.Version.Index}
	if !told.After(has) {
		return false, nil
	}
	a.metrics.LedgerBehind()
	a.cfg.Logger.Error("the ledger has lost entries: a caller was told a later position. Stop this node and keep its data directory; put the newest copy back, or run flightd restore accept",
		"ledger", has.String(), "caller", told.String())
	return true, nil
}
