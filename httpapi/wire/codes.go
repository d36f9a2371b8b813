package wire

import (
	"net/http"
	"slices"
)

// Code is the stable name of an error. Programs branch on the code; the rest of a problem is for people.
type Code string

// The codes. The table below has their statuses, and the advice for callers.
const (
	KeyRequired          Code = "idempotency_key_required"
	KeyInvalid           Code = "idempotency_key_invalid"
	InputInvalid         Code = "input_invalid"
	Unauthenticated      Code = "unauthenticated"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	RequestIncomplete    Code = "request_incomplete"
	InFlight             Code = "idempotency_in_flight"
	InDoubt              Code = "in_doubt"
	Fenced               Code = "fenced"
	CallbackEarly        Code = "callback_early"
	OpenExpired          Code = "open_expired"
	SessionInUse         Code = "session_in_use"
	ApprovalPending      Code = "approval_pending"
	LeaseLost            Code = "lease_lost"
	Expired              Code = "expired"
	PreconditionFailed   Code = "precondition_failed"
	PayloadTooLarge      Code = "payload_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	WrongDeployment      Code = "wrong_deployment"
	Conflict             Code = "idempotency_conflict"
	CallbacksOff         Code = "callbacks_off"
	FlightFailed         Code = "flight_failed"
	PreconditionRequired Code = "precondition_required"
	RateLimited          Code = "rate_limited"
	TooManyOpen          Code = "too_many_open"
	QuotaExceeded        Code = "quota_exceeded"
	Internal             Code = "internal"
	NoLeader             Code = "no_leader"
	LeaderLost           Code = "leader_lost"
	LedgerBehind         Code = "ledger_behind"
	LeaseUnavailable     Code = "lease_unavailable"
	ReportPending        Code = "report_pending"
	Draining             Code = "draining"
	Reconciling          Code = "reconciling"
)

// Class is the row of a code in the table.
type Class struct {
	Code      Code
	Status    int
	Retryable bool // the same request, sent again later, may get another answer without a person or caller acting first
	Title     string
	Hint      string // the next step, for a person
	// About is the text of the code's page: when the code is returned, and the state of the flight then.
	Description string
}

// classes is the table of all codes, sorted by status.
var classes = []Class{
	{KeyRequired, http.StatusBadRequest, false, "A key is required",
		"send action and id; together with the namespace they identify the business intent",
		"The request has no action or no id, so it identifies no business intent. Nothing was changed."},
	{KeyInvalid, http.StatusBadRequest, false, "The key is not valid",
		"namespace and action take letters, digits, '.', '_' and '-'; the id takes printable ASCII without space and '#', other bytes percent-encoded and the text in Unicode NFC; 1 to 255 bytes each",
		"A part of the key has invalid characters, an invalid length or a non-canonical spelling. flightd does not correct keys, because one intent must have exactly one spelling. Nothing was changed."},
	{InputInvalid, http.StatusBadRequest, false, "The request is not valid",
		"correct the places listed in errors (a JSON pointer into the body, a header or a parameter) and send the request again",
		"A field, a header or a parameter is missing, unknown, of the wrong type or out of bounds, or the JSON is outside RFC 7493. Nothing was changed."},
	{Unauthenticated, http.StatusUnauthorized, false, "Authentication required",
		"send Authorization: Bearer and a valid token; set FLIGHTD_TOKEN or FLIGHTD_TOKEN_FILE for the clients and the CLI; an administrator creates tokens with flightd token create",
		"The request has no token, or a token that is malformed, unknown, expired or revoked. Nothing was read or changed."},
	{Forbidden, http.StatusForbidden, false, "Not allowed",
		"use a token with the verb and the namespace that this request needs; a server without credentials needs a loopback Host and no foreign Origin",
		"Your token does not allow this request: it lacks the verb, or belongs to another namespace. Or a web page could have sent the request in your name. Nothing was changed."},
	{NotFound, http.StatusNotFound, false, "Not found",
		"check the path and the flight id, which is derived from namespace, action and id",
		"No route has this path, or this key was never used. Nothing was changed."},
	{MethodNotAllowed, http.StatusMethodNotAllowed, false, "The method is not allowed",
		"use one of the methods in the Allow header",
		"The path exists, but does not support this method. Nothing was changed."},
	{RequestIncomplete, http.StatusRequestTimeout, true, "The request is incomplete",
		"send the same request again",
		"The connection broke or timed out before the whole body had arrived. Nothing was changed."},
	{InFlight, http.StatusConflict, true, "The flight is still running",
		"repeat the open with the same key and nonce: it joins the running attempt or gets its receipt",
		"Another caller's attempt was still open when the wait ended, and it continues. Repeating the open is safe. If `proposed` is true, this open may still open an attempt, so send an abandon if you give up."},
	{InDoubt, http.StatusConflict, false, "The flight is in doubt",
		"check the provider, then run: flightd doubt resolve KEY --reason WHY --happened --receipt @FILE | --did-not-happen | --fail; to avoid this next time, use recovery resend (if the provider honours the idempotency key) or verify (if you can look up the effect there)",
		"The effect may or may not have happened. No caller may act until a person has resolved the flight."},
	{Fenced, http.StatusConflict, false, "This attempt is over",
		"do not act and do not report again; read the flight to see its outcome",
		"The attempt has ended: by a report, by the end of its session, by its timeout or by a person's decision. Or the attempt that this nonce opened has ended. A late report overwrites nothing; it is stored as evidence, unless the flight's retention has ended."},
	{OpenExpired, http.StatusConflict, false, "The open has expired",
		"draw a new nonce, and set not_after at most 60 s ahead of the ledger's time, which is ledger_time in this problem",
		"The ledger's time is past the open's not_after, or not_after is too far ahead of it: more than 60 s for an open, more than an hour for an abandon. Nothing was opened."},
	{CallbackEarly, http.StatusConflict, true, "The callback is early",
		"send the same callback again, as long as Retry-After says later",
		"The attempt has not been handed over to its callback yet, so its caller may still act. A success is accepted even so; after every other outcome another caller could act beside the first. Nothing was changed."},
	{SessionInUse, http.StatusConflict, false, "The session has open attempts",
		"report or abandon the session's open attempts, then close it; a renewal lists them",
		"Some attempts under this session were neither reported nor abandoned, so their effects may be running. The session was not closed."},
	{ApprovalPending, http.StatusConflict, false, "The flight awaits approval",
		"ask a person to approve the flight with flightd approvals approve KEY, then repeat the open",
		"The effect may not start until a person has approved this flight."},
	{LeaseLost, http.StatusGone, false, "The session has ended",
		"start no effect under this session; report the effects that you started; open with a new session",
		"The session was not renewed in time, was closed, or never existed."},
	{Expired, http.StatusGone, false, "The receipt is no longer kept",
		"use a new id for a new intent; flightd flights free frees the key, and then its effect can happen again",
		"The flight has ended, and the retention of its receipt is over. A tombstone still guards the key, so the effect does not run again."},
	{PreconditionFailed, http.StatusPreconditionFailed, false, "The flight has changed",
		"read the flight again, check that your decision is still right, and send its new ETag",
		"The flight has another version than the one in If-Match, or its state does not allow this decision. Nothing was changed."},
	{PayloadTooLarge, http.StatusRequestEntityTooLarge, false, "The request is too large",
		"send an input of at most 256 KiB; of a longer receipt send the beginning with truncated, size and digest",
		"The body is larger than this route accepts. Nothing was changed."},
	{UnsupportedMediaType, http.StatusUnsupportedMediaType, false, "The content type is not supported",
		"send Content-Type: application/json; for an import send application/x-ndjson",
		"The Content-Type of a POST is missing, or this route does not accept it. Without this check a web page could send the request in your name. Nothing was changed."},
	{WrongDeployment, http.StatusMisdirectedRequest, false, "This is another deployment",
		"use the address of one deployment only, or start a new client",
		"The request names a deployment, and this server belongs to another one, whose ledger does not contain the effects of the first. Nothing was read or changed."},
	{Conflict, http.StatusUnprocessableEntity, false, "The key belongs to another input",
		"if the intent differs, use another id; if the differing fields are generated, leave them out of the fingerprint, or compare the key only (fingerprint none; in the clients the option KeyDecides, key_decides or keyDecides)",
		"The key was first used with another input. No effect was started, and the stored receipt is not returned, because it belongs to the first input."},
	{CallbacksOff, http.StatusUnprocessableEntity, false, "This server takes no callbacks",
		"set public_url to the URL at which providers reach this server, on every node, and restart it",
		"The server has no public_url, so it cannot tell a provider where to report. Nothing was changed."},
	{FlightFailed, http.StatusFailedDependency, false, "The flight ended without success",
		"the answer is final, and every repeat gets it; to try again, use a new id, or, if the flight has no receipt and its input is not erased, run flightd flights retry",
		"The provider refused the request, the retries are used up, or the flight was cancelled. The flight is in the body."},
	{PreconditionRequired, http.StatusPreconditionRequired, false, "If-Match is required",
		"read the flight, decide by its state, and send its ETag in If-Match",
		"A decision must name the version of the flight that it was made on. Nothing was changed."},
	{RateLimited, http.StatusTooManyRequests, true, "Too many requests",
		"wait as long as Retry-After says, then repeat the request",
		"The namespace sends more opens than its limits allow, or this node has too many requests of this kind. New work is rejected first: a report is never rejected with this code. Nothing was changed."},
	{TooManyOpen, http.StatusTooManyRequests, true, "Too many opens are unfinished",
		"report or abandon your open attempts, wait as long as Retry-After says, then repeat the open with the same key and nonce",
		"This key has the maximum number of used nonces, or too many attempts are open at once. Nothing was opened."},
	{QuotaExceeded, http.StatusTooManyRequests, true, "The quota is used up",
		"wait until flights reach the end of their retention, or ask an administrator to raise the limit that detail names; then repeat the request",
		"The namespace, or the whole ledger, stores as much as its limits allow. Keys that are stored already are still answered. Nothing was changed."},
	{Internal, http.StatusInternalServerError, true, "flightd failed to answer",
		"repeat the request; if the error persists, search the server's log for the request id",
		"flightd failed unexpectedly. Repeating the request with the same key and nonce is safe."},
	{NoLeader, http.StatusServiceUnavailable, true, "The ledger is unavailable",
		"repeat the request with the same key and nonce",
		"The ledger has no leader, its disk is full, or it did not answer in time. Or this node had no memory for the long body of a report, which it then did not read. No effect may start without the ledger. Repeating the request is safe."},
	{LeaderLost, http.StatusServiceUnavailable, true, "The leader was lost during the request",
		"repeat the request with the same key and nonce",
		"The node that had the request stopped leading the ledger before it had answered, so nobody knows what became of the request. Repeating it with the same key and nonce is safe: another node leads."},
	{LedgerBehind, http.StatusServiceUnavailable, true, "The ledger is older than the caller knows",
		"tell the operator: the ledger has lost entries that were acknowledged, as after the snapshot of a virtual machine was restored; flightd restore accept is the way on",
		"The request names a position of the ledger that this server was told, and the ledger does not reach it. Receipts may be missing, and their effects would happen again. Nothing was changed."},
	{LeaseUnavailable, http.StatusServiceUnavailable, true, "Leases are unavailable",
		"repeat the request with the same key and nonce",
		"etcd is unreachable or has lost data. No effect may start without a lease. Repeating the request is safe."},
	{ReportPending, http.StatusServiceUnavailable, true, "The report is not committed yet",
		"repeat the report until it is answered with 200",
		"The node has the outcome, but the ledger has not committed it yet. Repeating the report is safe."},
	{Draining, http.StatusServiceUnavailable, true, "The server is stopping",
		"send the request to another node, or to this one later",
		"The node is shutting down and accepts no new requests. Nothing was changed."},
	{Reconciling, http.StatusServiceUnavailable, true, "The ledger was restored",
		"repeat the request later; an operator runs flightd restore asked, imports what has happened, and ends this with flightd restore finish",
		"The ledger was restored from a backup or a copy. This key has no receipt in it, and may have one in the ledger that was lost, so no effect may start. Reports, imports and stored receipts are served. Nothing was opened."},
}

// Classes returns the table, sorted by status.
func Classes() []Class { return slices.Clone(classes) }

// Class returns the row of a code, or false if the code is unknown.
func (c Code) Class() (Class, bool) {
	for i := range classes {
		if classes[i].Code == c {
			return classes[i], true
		}
	}
	return Class{}, false
}
