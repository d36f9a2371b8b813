package httpapi

import (
	"net/http"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/openapi"
	"github.com/flightd/flightd/internal/wire"
)

// clusterState serves GET /v1/cluster.
func (a *api) clusterState(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Cluster == nil {
		a.writeInvalid(w, r, &wire.Invalid{Code: wire.NotFound, Hint: "flightd cluster found makes a cluster of several nodes",
			FieldError: wire.FieldError{Detail: "this server has no cluster"}})
		return
	}
	if boundCaller(r) != nil {
		a.writeInvalid(w, r, &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
			Detail: "a token of one namespace cannot look at the cluster"}})
		return
	}
	state := a.cfg.Cluster()
	a.writeJSON(w, r, http.StatusOK, &state)
}

// raiseLeaseEpoch serves POST /v1/lease-epoch:raise.
func (a *api) raiseLeaseEpoch(w http.ResponseWriter, r *http.Request) {
	body, bad := a.receiveBody(w, r, wire.MaxSmallBody)
	var req wire.RaiseLeaseEpoch
	if bad == nil {
		req, bad = wire.DecodeRaiseLeaseEpoch(body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad == nil && boundCaller(r) != nil {
		bad = &wire.Invalid{Code: wire.Forbidden, Hint: "use a token of all namespaces", FieldError: wire.FieldError{Header: wire.HeaderAuthorization,
			Detail: "a token of one namespace cannot raise the lease epoch"}}
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	if err := a.cfg.RaiseLeaseEpoch(r.Context(), d.actor, d.reason); err != nil {
		a.writeError(w, r, flight.Key{}, err)
		return
	}
	h := a.cfg.Ledger.Header()
	out := wire.LeaseEpoch{Epoch: h.LeaseEpoch}
	if left := h.EpochHold.Until(a.cfg.Ledger.Now()); left > 0 {
		out.HoldUntil, out.HoldMS = wireTime(h.EpochHold), left.Milliseconds()
	}
	a.writeJSON(w, r, http.StatusOK, &out)
}

func clusterOperations() []openapi.Operation {
	return []openapi.Operation{{
		Pattern: "POST /v1/lease-epoch:raise", ID: "raiseLeaseEpoch", Tag: tagAdmin, Summary: "Accept an etcd that has lost data",
		About: "If etcd knows less than the ledger, nothing opens. This request accepts that etcd: all sessions end, and attempts that were open are not taken over before their holders must have ended. " +
			"It changes nothing if etcd has lost nothing. The request needs a token of all namespaces.",
		Parameters: []string{wire.HeaderActor}, Request: wire.RaiseLeaseEpoch{}, Example: `{"reason":"etcd was restored from its snapshot of noon","actor":"maria"}`,
		Answers: okAnswer("the present lease epoch", wire.LeaseEpoch{}), Problems: bodyCodes,
	}, {
		Pattern: "GET /v1/cluster", ID: "getCluster", Tag: tagAdmin, Summary: "Describe the nodes of the cluster",
		About:   "The answer is how the leader sees the nodes, at most a second old. A lone node describes itself. The request needs a token of all namespaces.",
		Answers: okAnswer("the nodes", wire.Cluster{}), Problems: codes(readCodes, wire.NotFound),
	}}
}
