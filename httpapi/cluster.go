package httpapi

import (
	"context"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// clusterRoutes serve the nodes of the cluster, and their etcd.
type clusterRoutes struct {
	*documentStore
	cluster Cluster
}

func (cr *clusterRoutes) routes() []declaration {
	return []declaration{
		Endpoint[struct{}, wire.Cluster]{Pattern: "GET /v1/cluster", Access: with(auth.Operate | auth.Admin), Serve: cr.state},
		Endpoint[replacement, wire.Cluster]{Pattern: "POST /v1/cluster/nodes/{name}/replace",
			Access: with(auth.Admin), Body: wire.MaxSmallBody, Serve: cr.replace},
		Endpoint[wire.ReasonRequest, wire.LeaseEpoch]{Pattern: "POST /v1/lease-epoch:raise",
			Access: with(auth.Admin), Body: wire.MaxSmallBody, Serve: cr.raiseLeaseEpoch},
	}
}

// state describes the nodes.
func (cr *clusterRoutes) state(q *Request, _ *struct{}) (*wire.Cluster, error) {
	switch {
	case cr.cluster.State == nil:
		return nil, &wire.Invalid{Code: wire.NotFound, Hint: "flightd cluster found makes a cluster of several nodes", FieldError: wire.FieldError{Detail: "this server has no cluster"}}
	case boundCaller(q.Request) != nil:
		return nil, &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
			Detail: "a token of one namespace cannot look at the cluster"}}
	}
	state := cr.cluster.State()
	return &state, nil
}

// replacement asks for the replacement of a node.
type replacement struct {
	Name string `json:"-" path:"name"`
	wire.ReplaceNode
}

// replace replaces a node. A repeat with the same certificate changes nothing.
func (cr *clusterRoutes) replace(q *Request, in *replacement) (*wire.Cluster, error) {
	bad := onlyAllNamespaces(q.Request)
	if bad == nil && cr.cluster.ReplaceNode == nil {
		bad = &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no cluster"}}
	}
	if bad != nil {
		return nil, bad
	}
	who, why, bad := attribution(q.Request, in.Actor, in.Reason)
	if bad != nil {
		return nil, bad
	}
	propose := func(ctx context.Context, put *flight.PutDocument) error {
		put.Actor, put.Reason = who, why
		return cr.changeDocument(q.WithContext(ctx), put)
	}
	if err := cr.cluster.ReplaceNode(in.Name, strings.ToLower(in.Certificate), in.WhileRunning, propose); err != nil {
		return nil, err
	}
	state := cr.cluster.State()
	return &state, nil
}

// raiseLeaseEpoch accepts an etcd that has lost data.
func (cr *clusterRoutes) raiseLeaseEpoch(q *Request, in *wire.ReasonRequest) (*wire.LeaseEpoch, error) {
	who, why, bad := attribution(q.Request, in.Actor, in.Reason)
	if bad == nil {
		bad = onlyAllNamespaces(q.Request)
	}
	if bad != nil {
		return nil, bad
	}
	if err := cr.cluster.RaiseLeaseEpoch(context.WithoutCancel(q.Context()), who, why); err != nil {
		return nil, err
	}
	h := cr.ledger.Header()
	out := &wire.LeaseEpoch{Epoch: h.LeaseEpoch}
	if left := h.EpochHold.Until(cr.ledger.Now()); left > 0 {
		out.HoldUntil, out.HoldMS = wireTime(h.EpochHold), left.Milliseconds()
	}
	return out, nil
}
