package httpapi_test

import (
	"net/http"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
)

// auditParameters are the query parameters of GET /v1/audit.
func auditParameters() []Parameter {
	limit := typedSchema("integer")
	from, to := int64(1), int64(httpapi.MaxPage)
	limit.Minimum, limit.Maximum, limit.Default = &from, &to, httpapi.DefaultPage
	before := typedSchema("string")
	before.Pattern = `^[0-9]+\.[0-9]+$`
	return []Parameter{
		{Name: "limit", Schema: limit, About: "the largest number of entries on the page"},
		{Name: "before", Schema: before, About: "only entries before this one: the `next` of an earlier page"},
		{Name: "verb", Schema: typedSchema("string"), About: "only entries with this verb"},
	}
}

// okAnswer is the answer 200 with a value as JSON.
func okAnswer(about string, v any) []Answer {
	return []Answer{{Status: http.StatusOK, About: about, Content: jsonContent(v)}}
}

func adminOperations() []Operation {
	const why = `{"reason":"the service was shut down","actor":"maria"}`
	documentCodes := codes(bodyCodes, wire.NotFound, wire.PreconditionFailed)
	return []Operation{{
		Pattern: "POST /v1/tokens", ID: "createToken", Tag: tagAdmin, Summary: "Create a token, or give it a new secret",
		About: "The answer is the only place where the secret is shown. If you lost the answer, send the request again with `rotate`. " +
			"You can give only verbs and a namespace that your own token has.",
		Parameters: []string{wire.HeaderNamespace, wire.HeaderActor}, Request: wire.TokenRequest{},
		Example:  `{"name":"web","namespace":"billing","verbs":["submit","read"],"expires_in_ms":7776000000,"reason":"the web service starts to use flightd","actor":"maria"}`,
		Answers:  []Answer{{Status: http.StatusCreated, About: "the token, with its secret", Content: jsonContent(wire.NewToken{})}},
		Problems: codes(documentCodes, wire.QuotaExceeded),
	}, {
		Pattern: "GET /v1/tokens", ID: "listTokens", Tag: tagAdmin, Summary: "List tokens",
		Answers: okAnswer("the tokens", wire.TokenList{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "DELETE /v1/tokens/{namespace}/{name}", ID: "revokeToken", Tag: tagAdmin, Summary: "Revoke a token",
		About:      "The token is rejected from the next request on. In a cluster, `not_yet` names the nodes that do not answer: such a node may answer stored receipts and events to the token for at most 60 s. Reports of its attempts are still accepted, from any other token of the namespace with the verb `submit` or `work`.",
		Parameters: []string{wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: why,
		Answers: okAnswer("the token is revoked", wire.Revoked{}), Problems: documentCodes,
	}, {
		Pattern: "GET /v1/namespaces", ID: "listNamespaces", Tag: tagAdmin, Summary: "List the namespaces, with their limits and their use",
		Answers: okAnswer("the namespaces", wire.NamespaceList{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "GET /v1/namespaces/{name}", ID: "getNamespace", Tag: tagAdmin, Summary: "Get the limits of a namespace",
		Answers: okAnswer("the namespace", wire.Namespace{}), Problems: codes(readCodes, wire.NotFound),
	}, {
		Pattern: "PUT /v1/namespaces/{name}", ID: "setNamespace", Tag: tagAdmin, Summary: "Set the limits of a namespace",
		About:      "The request replaces all limits of the namespace. It needs a token of all namespaces.",
		Parameters: []string{wire.HeaderActor}, Request: wire.NamespaceRequest{},
		Example: `{"opens_per_second":200,"max_open":1000,"reason":"agreed with the team","actor":"maria"}`,
		Answers: okAnswer("the namespace", wire.Namespace{}), Problems: codes(documentCodes, wire.QuotaExceeded),
	}, {
		Pattern: "DELETE /v1/namespaces/{name}", ID: "deleteNamespace", Tag: tagAdmin, Summary: "Delete the limits of a namespace",
		About:      "The limits of the namespace `*` apply then. No flight is deleted. The request needs a token of all namespaces.",
		Parameters: []string{wire.HeaderActor}, Request: wire.ReasonRequest{}, Example: why,
		Answers: okAnswer("the namespace has no limits of its own", struct{}{}), Problems: documentCodes,
	}, {
		Pattern: "GET /v1/audit", ID: "listAudit", Tag: tagAdmin, Summary: "List the decisions of people, newest first",
		About: "A token of one namespace gets the entries of that namespace.",
		Query: auditParameters(), Answers: okAnswer("a page of entries", wire.AuditPage{}), Problems: codes(readCodes, wire.NotFound, wire.RateLimited),
	}, {
		Pattern: "GET /v1/whoami", ID: "whoAmI", Tag: tagAdmin, Summary: "Describe the token of the request",
		Answers: okAnswer("the token", wire.WhoAmI{}), Problems: readCodes,
	}}
}

func clusterOperations() []Operation {
	return []Operation{{
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
			"`precondition_failed`: the node leads, it runs and `while_running` is not true, or the others would be no majority. Nodes that vote are replaced one after the other. A repeat changes nothing. The request needs a token of all namespaces.",
		Parameters: []string{wire.HeaderActor}, Request: wire.ReplaceNode{},
		Example: `{"certificate":"49ec49fe2ad166ef0b18ff7d94291ca849ec49fe2ad166ef0b18ff7d94291ca8","reason":"its disk died","actor":"maria"}`,
		Answers: okAnswer("the nodes", wire.Cluster{}), Problems: codes(bodyCodes, wire.NotFound, wire.PreconditionFailed, wire.QuotaExceeded),
	}}
}
