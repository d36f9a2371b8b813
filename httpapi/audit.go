package httpapi

import (
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// auditRoutes serve the audit log.
type auditRoutes struct {
	*documentStore
	auditLog AuditLog
	limits   *auth.Limiter
}

func (ar *auditRoutes) routes() []declaration {
	return []declaration{
		Endpoint[auditQuery, wire.AuditPage]{Pattern: "GET /v1/audit", Access: with(auth.Operate | auth.Admin), Serve: ar.audit},
	}
}

// auditQuery selects entries of the audit log.
type auditQuery struct {
	Before versionParameter `query:"before"`
	Limit  limitParameter   `query:"limit"`
	Verb   string           `query:"verb"`
}

// audit returns the decisions of people, newest first.
func (ar *auditRoutes) audit(q *Request, in *auditQuery) (*wire.AuditPage, error) {
	if bad := ar.requireDocuments(); bad != nil {
		return nil, bad
	}
	bound := boundCaller(q.Request)
	scanned := wire.AllNamespaces
	if bound != nil {
		scanned = bound.Namespace
	}
	end, err := ar.limits.StartScan(scanned)
	if err != nil {
		return nil, err
	}
	defer end()
	entries, next, err := ar.auditLog.Audit(in.Before.Version, in.Limit.or(defaultPage), func(e *flight.AuditEntry) bool {
		return (in.Verb == "" || e.Verb == in.Verb) && (bound == nil || e.Namespace == bound.Namespace)
	})
	if err != nil {
		return nil, err
	}
	out := &wire.AuditPage{Entries: make([]wire.AuditEntry, len(entries)), Next: formatVersion(next)}
	for i := range entries {
		e := &entries[i]
		out.Entries[i] = wire.AuditEntry{At: wireTime(e.At), Version: e.Version.String(), Verb: e.Verb, Namespace: e.Namespace, Subject: e.Subject,
			Actor: e.Actor, Reason: e.Reason}
	}
	return out, nil
}
