package httpapi

import (
	"net/http"

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

func clusterOperations() []openapi.Operation {
	return []openapi.Operation{{
		Pattern: "GET /v1/cluster", ID: "getCluster", Tag: tagAdmin, Summary: "Describe the nodes of the cluster",
		About:   "The answer is how the leader sees the nodes, at most a second old. A lone node describes itself. The request needs a token of all namespaces.",
		Answers: okAnswer("the nodes", wire.Cluster{}), Problems: codes(readCodes, wire.NotFound),
	}}
}
