package httpapitest

import (
	"context"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/remote"
)

// FollowerConfig is the configuration of a node that does not lead: it answers reads, and opens of keys with a final receipt,
// from view.
func (fa *Fake) FollowerConfig(view *flightdtest.Follower) httpapi.Config {
	cfg := fa.Config()
	cfg.Ledger = viewLedger{cfg.Ledger, view}
	cfg.Remote = replays{from: remote.NewReplays(remote.Config{Ledger: view, Reader: view})}
	cfg.Cluster.Follower = func() bool { return true }
	return cfg
}

// viewLedger reads flights from a view.
type viewLedger struct {
	httpapi.Ledger
	view *flightdtest.Follower
}

func (l viewLedger) Header() flight.Header { return l.view.Header() }

func (l viewLedger) Flight(id flight.ID) (*flight.Flight, error) { return l.view.Flight(id) }

func (l viewLedger) Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error) {
	return l.view.Wait(ctx, id, seen)
}

// replays serves opens of keys with a final receipt. No other method is called.
type replays struct {
	httpapi.Remote
	from remote.Replays
}

func (rs replays) Open(_ context.Context, r remote.OpenRequest) (remote.OpenAnswer, error) {
	return rs.from.Open(r)
}
