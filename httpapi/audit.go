package httpapi

import (
	"net/http"

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
	return []declaration{route{pattern: "GET /v1/audit", serve: ar.audit, access: with(auth.Operate | auth.Admin), query: true}}
}

// audit serves GET /v1/audit: the decisions of people, newest first.
func (ar *auditRoutes) audit(w http.ResponseWriter, r *http.Request) error {
	before, limit, verb, bad := parseAuditQuery(r)
	if bad == nil {
		bad = ar.requireDocuments()
	}
	if bad != nil {
		return bad
	}
	bound := boundCaller(r)
	scanned := wire.AllNamespaces
	if bound != nil {
		scanned = bound.Namespace
	}
	end, err := ar.limits.StartScan(scanned)
	if err != nil {
		return err
	}
	defer end()
	entries, next, err := ar.auditLog.Audit(before, limit, func(e *flight.AuditEntry) bool {
		return (verb == "" || e.Verb == verb) && (bound == nil || e.Namespace == bound.Namespace)
	})
	if err != nil {
		return err
	}
	out := wire.AuditPage{Entries: make([]wire.AuditEntry, len(entries))}
	for i := range entries {
		e := &entries[i]
		out.Entries[i] = wire.AuditEntry{At: wireTime(e.At), Version: e.Version.String(), Verb: e.Verb, Namespace: e.Namespace, Subject: e.Subject,
			Actor: e.Actor, Reason: e.Reason}
	}
	out.Next = formatVersion(next)
	return writeJSON(w, r, http.StatusOK, &out)
}

func parseAuditQuery(r *http.Request) (before flight.Version, limit int, verb string, bad *wire.Invalid) {
	limit = defaultPage
	params, bad := queryParameters(r)
	if bad != nil {
		return before, 0, "", bad
	}
	for name, values := range params {
		if len(values) > 1 {
			return before, 0, "", duplicateParameter(name)
		}
		var err error
		switch value := values[0]; name {
		case "before":
			if before, err = flight.ParseVersion(value); err != nil {
				return before, 0, "", wire.BadParameter(name, "it must be the version of an entry or the next of an earlier page, like 8123.4")
			}
		case "limit":
			if limit, bad = parsePageLimit(value); bad != nil {
				return before, 0, "", bad
			}
		case "verb":
			verb = value
		default:
			return before, 0, "", wire.BadParameter(name, "unknown parameter; allowed: before, limit, verb")
		}
	}
	return before, limit, verb, nil
}
