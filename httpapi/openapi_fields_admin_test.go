package httpapi_test

import (
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// adminDocs documents the fields of tokens, namespaces and the audit log.
func adminDocs() map[string]fieldDoc {
	const namePattern, text = `^[A-Za-z0-9._-]+$`, 64 << 10
	limit := func(about string) fieldDoc { return fieldDoc{about: about, max: wire.MaxLimit} }
	return map[string]fieldDoc{
		"TokenRequest.name":       {about: "the name of the token; sessions belong to it, and a new secret of the same name continues them", pattern: namePattern, maxLength: flight.MaxKeyPart},
		"TokenRequest.namespace":  {about: "the namespace of the token; `*`: all; absent: the namespace of the request"},
		"TokenRequest.verbs":      {about: "`submit`, `work`, `read`, `operate`, `admin`, `define`; absent: `submit` and `read`, or, with `rotate`, those of the token. You can give only verbs that your own token has"},
		"TokenRequest.reason":     {about: "why; stored in the audit log", maxLength: text},
		"ReasonRequest.reason":    {about: "why; stored in the audit log", maxLength: text},
		"NamespaceRequest.reason": {about: "why; stored in the audit log", maxLength: text},
		"expires_in_ms":           {about: "how long the new secret is valid, in ledger time; 0: it does not expire", max: maxLongMS},
		"rotate":                  {about: "the token exists: give it a new secret. The older secrets end at once, or after `keep_old_ms`"},
		"keep_old_ms":             {about: "with `rotate`: how long the older secrets stay valid; a token has at most 4 valid secrets", max: maxLongMS},
		"NewToken.name":           {about: "the name of the token"},
		"Token.name":              {about: "the name of the token"},
		"WhoAmI.name":             {about: "the name of the token; empty if the server needs no credentials"},
		"namespace":               {about: "the namespace; `*`: all"},
		"AuditEntry.namespace":    {about: "the namespace of the subject; `*`: the whole deployment"},
		"verbs":                   {about: "the verbs of the token"},
		"Token.verbs":             {about: "the verbs of the token; empty if its document cannot be read, so that the token is invalid"},
		"NewToken.expires_at":     {about: "when the secret expires; absent: never"},
		"WhoAmI.expires_at":       {about: "when the secret of this request expires; absent: never"},
		"Token.expires_at":        {about: "when the last secret expires; absent: never"},
		"token":                   {about: "the secret: `fltd_` and 43 characters and, for a token of one namespace, a dot and the namespace. The server stores only its SHA-256"},
		"Token.created_at":        {about: "when the token was created"},
		"secrets":                 {about: "the number of valid secrets, at most 4"},
		"Token.version":           {about: "the version of the token's last change", pattern: versionPattern},
		"tokens":                  {about: "the tokens, sorted by namespace and name"},
		"opens_per_second":        limit("opens, submissions, claimed jobs and new sessions per second, at one node"),
		"burst":                   limit("how many of them may come at once; absent: as many as per second"),
		"max_open":                limit("attempts without a report"),
		"max_flights":             limit("stored flights, without tombstones"),
		"max_waits":               limit("requests that wait for a change, at one node; beyond it, waits end at once"),
		"max_streams":             limit("open event streams, at one node"),
		"Namespace.name":          {about: "the namespace; `*`: those without limits of their own"},
		"Namespace.open":          {about: "attempts without a report, now"},
		"stored":                  {about: "stored flights, now, without tombstones"},
		"namespaces":              {about: "the namespaces, sorted by name"},
		"tombstones":              {about: "expired flights of all namespaces: a tombstone has no key any more. Absent for a token of one namespace"},
		"AuditEntry.version":      {about: "the version of the command in the ledger's log", pattern: versionPattern},
		"verb":                    {about: "what was done, such as `resolve`, `free` or `create_token`"},
		"subject":                 {about: "the key of a flight, or the kind and name of a document"},
		"entries":                 {about: "the entries, newest first"},
		"AuditPage.next":          {about: "the `before` of the next page; absent on the last page. One request reads a bounded part of the log, so a page with `next` may have fewer entries than `limit`, or none", pattern: versionPattern},
	}
}

// maxLongMS is the longest duration that a request may name: ten years.
const maxLongMS = int64(10 * 365 * 24 * 3600 * 1000)
