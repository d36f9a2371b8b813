package httpapi

import (
	"net/http"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/openapi"
	"github.com/flightd/flightd/httpapi/wire"
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

// replaceNode serves POST /v1/cluster/nodes/{name}/replace. A repeat with the same certificate changes nothing.
func (a *api) replaceNode(w http.ResponseWriter, r *http.Request) {
	body, bad := a.readAdminBody(w, r)
	if bad == nil {
		bad = onlyAllNamespaces(r)
	}
	if bad == nil && a.cfg.ReplaceNode == nil {
		bad = &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no cluster"}}
	}
	var req wire.ReplaceNode
	if bad == nil {
		req, bad = wire.DecodeReplaceNode(body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	var put *flight.PutDocument
	if bad == nil {
		put, bad = a.cfg.ReplaceNode(r.PathValue("name"), strings.ToLower(req.Certificate), req.WhileRunning)
	}
	if bad != nil {
		a.writeInvalid(w, r, bad)
		return
	}
	if put != nil {
		put.Actor, put.Reason = d.actor, d.reason
		if !a.changeDocument(w, r, put) {
			return
		}
	}
	state := a.cfg.Cluster()
	a.writeJSON(w, r, http.StatusOK, &state)
}

// raiseLeaseEpoch serves POST /v1/lease-epoch:raise.
func (a *api) raiseLeaseEpoch(w http.ResponseWriter, r *http.Request) {
	body, bad := a.receiveBody(w, r, wire.MaxSmallBody)
	var req wire.ReasonRequest
	if bad == nil {
		req, bad = wire.DecodeReason(body)
	}
	var d operatorRequest
	if bad == nil {
		bad = d.setAttribution(r, req.Actor, req.Reason)
	}
	if bad == nil {
		bad = onlyAllNamespaces(r)
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
		Parameters: []string{wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: `{"reason":"etcd was restored from its snapshot of noon","actor":"maria"}`,
		Answers: okAnswer("the present lease epoch", wire.LeaseEpoch{}), Problems: bodyCodes,
	}, {
		Pattern: "GET /v1/cluster", ID: "getCluster", Tag: tagAdmin, Summary: "Describe the nodes of the cluster",
		About:   "The answer is how the leader sees the nodes, at most a second old. A lone node describes itself. The request needs a token of all namespaces.",
		Answers: okAnswer("the nodes", wire.Cluster{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "POST /v1/cluster/nodes/{name}/replace", ID: "replaceNode", Tag: tagAdmin, Summary: "Replace a node that lost its disk",
		About: "From now on, the node of this name is the one that has the certificate, with the first data directory with which it starts. The old certificate and the old data directory are refused for ever. " +
			"`precondition_failed`: the node leads, it runs and `while_running` is not true, or the others would be no majority. Nodes are replaced one after the other. A repeat changes nothing. The request needs a token of all namespaces.",
		Parameters: []string{wire.HeaderActor}, Request: wire.ReplaceNode{},
		Example: `{"certificate":"49ec49fe2ad166ef0b18ff7d94291ca849ec49fe2ad166ef0b18ff7d94291ca8","reason":"its disk died","actor":"maria"}`,
		Answers: okAnswer("the nodes", wire.Cluster{}), Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed, wire.QuotaExceeded),
	}}
}
