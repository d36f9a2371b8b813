package node

import (
	"context"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/lease"
)

var (
	_ executor.Ledger          = (*clusterstore.Store)(nil)
	_ executor.Reader          = (*clusterstore.Store)(nil)
	_ lease.LedgerState        = (*clusterstore.Store)(nil)
	_ httpapi.Ledger           = (*clusterstore.Store)(nil)
	_ httpapi.DuplicateCounter = (*clusterstore.Store)(nil)
	_ httpapi.Feed             = (*clusterstore.Feed)(nil)
	_ httpapi.Operator         = operator{}
)

// operator proposes the decisions of people and publishes their events.
type operator struct {
	store  *clusterstore.Store
	events *executor.Events
}

func (o operator) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	reply, err := o.store.Propose(ctx, c)
	o.events.Publish(c.Target(), reply.Events)
	if reply.Decision == flight.DecisionReconciling && o.events.Called != nil { // a saga; flightd restore asked lists it
		o.events.Called(c.Target(), executor.ResultReconciling, 0)
	}
	return reply, err
}

func (o operator) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	replies, err := o.store.ProposeAll(ctx, all)
	for i := range replies {
		o.events.Publish(all[i].Target(), replies[i].Events)
	}
	return replies, err
}
