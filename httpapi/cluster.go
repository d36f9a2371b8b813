package httpapi

import (
	"context"
	"net/http"
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
		route{pattern: "GET /v1/cluster", serve: cr.clusterState, access: with(auth.Operate | auth.Admin)},
		route{pattern: "POST /v1/cluster/nodes/{name}/replace", serve: cr.replaceNode, access: with(auth.Admin)},
		route{pattern: "POST /v1/lease-epoch:raise", serve: cr.raiseLeaseEpoch, access: with(auth.Admin)},
	}
}

// clusterState serves GET /v1/cluster.
func (cr *clusterRoutes) clusterState(w http.ResponseWriter, r *http.Request) error {
	if cr.cluster.State == nil {
		return &wire.Invalid{Code: wire.NotFound, Hint: "flightd cluster found makes a cluster of several nodes",
			FieldError: wire.FieldError{Detail: "this server has no cluster"}}
	}
	if boundCaller(r) != nil {
		return &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
			Detail: "a token of one namespace cannot look at the cluster"}}
	}
	state := cr.cluster.State()
	return writeJSON(w, r, http.StatusOK, &state)
}

// replaceNode serves POST /v1/cluster/nodes/{name}/replace. A repeat with the same certificate changes nothing.
func (cr *clusterRoutes) replaceNode(w http.ResponseWriter, r *http.Request) error {
	body, bad := cr.readAdminBody(w, r, wire.MaxSmallBody)
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	if bad == nil && cr.cluster.ReplaceNode == nil {
		bad = &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no cluster"}}
	}
	var req wire.ReplaceNode
	if bad == nil {
		req, bad = wire.Decode[wire.ReplaceNode](body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad != nil {
		return bad
	}
	propose := func(ctx context.Context, put *flight.PutDocument) error {
		put.Actor, put.Reason = d.actor, d.reason
		return cr.changeDocument(r.WithContext(ctx), put)
	}
	if err := cr.cluster.ReplaceNode(r.PathValue("name"), strings.ToLower(req.Certificate), req.WhileRunning, propose); err != nil {
		return err
	}
	state := cr.cluster.State()
	return writeJSON(w, r, http.StatusOK, &state)
}

// raiseLeaseEpoch serves POST /v1/lease-epoch:raise.
func (cr *clusterRoutes) raiseLeaseEpoch(w http.ResponseWriter, r *http.Request) error {
	req, bad := receive(cr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.ReasonRequest])
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	if bad != nil {
		return bad
	}
	if err := cr.cluster.RaiseLeaseEpoch(context.WithoutCancel(r.Context()), d.actor, d.reason); err != nil {
		return err
	}
	h := cr.ledger.Header()
	out := wire.LeaseEpoch{Epoch: h.LeaseEpoch}
	if left := h.EpochHold.Until(cr.ledger.Now()); left > 0 {
		out.HoldUntil, out.HoldMS = wireTime(h.EpochHold), left.Milliseconds()
	}
	return writeJSON(w, r, http.StatusOK, &out)
}
