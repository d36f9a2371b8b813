package wire

import (
	"net/http"
	"slices"
)

// Code is the stable name of an error. Programs branch on it; everything else in a problem is for people.
type Code string

// The codes. Their statuses and what a caller may do are in the table below.
const (
	KeyRequired          Code = "idempotency_key_required"
	KeyInvalid           Code = "idempotency_key_invalid"
	InputInvalid         Code = "input_invalid"
	Unauthenticated      Code = "unauthenticated"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	Incomplete           Code = "request_incomplete"
	InFlight             Code = "idempotency_in_flight"
	InDoubt              Code = "in_doubt"
	Fenced               Code = "fenced"
	OpenExpired          Code = "open_expired"
	SessionInUse         Code = "session_in_use"
	ApprovalPending      Code = "approval_pending"
	LeaseLost            Code = "lease_lost"
	Expired              Code = "expired"
	PreconditionFailed   Code = "precondition_failed"
	PayloadTooLarge      Code = "payload_too_large"
	WrongDeployment      Code = "wrong_deployment"
	Conflict             Code = "idempotency_conflict"
	FlightFailed         Code = "flight_failed"
	PreconditionRequired Code = "precondition_required"
	RateLimited          Code = "rate_limited"
	TooManyOpen          Code = "too_many_open"
	Internal             Code = "internal"
	NoLeader             Code = "no_leader"
	LeaseUnavailable     Code = "lease_unavailable"
	ReportPending        Code = "report_pending"
	Draining             Code = "draining"
)

// Class is what the table says of a code.
type Class struct {
	Code      Code
	Status    int
	Retryable bool // the same request, sent again later, may be answered otherwise without anybody having acted
	Title     string
	Hint      string // what to do, for the person who reads it
	// About is the page of the code: when it is answered, and what is true then.
	About string
}

// classes is the one table of class to status.
var classes = []Class{
	{KeyRequired, http.StatusBadRequest, false, "A key is required",
		"send action and id; together with the namespace they name the business intent",
		"The request names no business intent. Nothing was changed."},
	{KeyInvalid, http.StatusBadRequest, false, "The key is not valid",
		"namespace and action take letters, digits, '.', '_' and '-'; the id takes printable ASCII without space and '#', other bytes percent-encoded; 1 to 255 bytes each",
		"A part of the key cannot be what it claims to be. One intent has one spelling, so nothing is repaired in silence. Nothing was changed."},
	{InputInvalid, http.StatusBadRequest, false, "The request is not valid",
		"errors names each place: a JSON pointer into the body, a header or a parameter; correct it and send the request again",
		"A field, a header or a parameter is missing, unknown, of the wrong type or out of bounds, or the JSON is outside RFC 7493. Nothing was changed."},
	{Unauthenticated, http.StatusUnauthorized, false, "Who are you?",
		"send a valid credential",
		"The request carries no valid credential. Nothing was changed."},
	{Forbidden, http.StatusForbidden, false, "Not allowed",
		"a development server answers only requests from this machine: a loopback Host, no foreign Origin, and a JSON content type on writes",
		"The request is of a kind that a web page could send in somebody's name, or the credential does not allow it. Nothing was changed."},
	{NotFound, http.StatusNotFound, false, "Not found",
		"check the path, and the id: it is derived from namespace, action and id",
		"There is no such route, or no flight was ever made for this key. Nothing was changed."},
	{MethodNotAllowed, http.StatusMethodNotAllowed, false, "This path takes another method",
		"the Allow header names the methods",
		"The path exists, but not for this method. Nothing was changed."},
	{Incomplete, http.StatusRequestTimeout, true, "A part of the request did not come",
		"send the same request again",
		"The connection broke, or was too slow, before the whole body had come. Nothing was changed."},
	{InFlight, http.StatusConflict, true, "The flight is still running",
		"ask again with the same key and nonce: you will join the running attempt or get its receipt",
		"Another caller's attempt was still open when the wait was over, and goes on. Asking again is safe. Where `proposed` is true, this open may still open an attempt: a caller that gives up sends an abandon."},
	{InDoubt, http.StatusConflict, false, "The flight is in doubt",
		"look at the provider, then settle it: flightd doubt resolve KEY --reason WHY --happened --receipt @FILE | --did-not-happen | --fail; recovery resend or verify avoids this next time, where the provider honours the idempotency key or can be asked",
		"The effect may or may not have happened, and nobody may act before a person has said so."},
	{Fenced, http.StatusConflict, false, "This attempt is over",
		"do not act and do not report again; read the flight to see what was decided",
		"The attempt has ended: by a report, by the end of its session, by its time-out, or by a person's decision; or this nonce has had its attempt. A late report is kept as evidence, unless the flight's retention is over, and overwrites nothing."},
	{OpenExpired, http.StatusConflict, false, "The open has expired",
		"take a new nonce, and set not_after at most 60 s ahead of the ledger's time, which is ledger_time in this problem",
		"The ledger's time is past the open's not_after, or not_after is too far ahead of it: more than 60 s for an open, more than an hour for an abandon. Nothing was opened."},
	{SessionInUse, http.StatusConflict, false, "The session has open attempts",
		"report or abandon the attempts that are open under the session, then close it; a renewal lists them",
		"Attempts under this session were neither reported nor abandoned, so their effects may be running. The session was not closed."},
	{ApprovalPending, http.StatusConflict, false, "The flight awaits approval",
		"a person must approve it first",
		"No effect may start before a person has approved this flight."},
	{LeaseLost, http.StatusGone, false, "The session is gone",
		"start no effect under this session; report effects that were started; open with a new session",
		"The session was not renewed in time, was closed, or never existed."},
	{Expired, http.StatusGone, false, "The receipt is no longer kept",
		"this intent was carried out before; for a new one use a new id; flightd flights free gives the key away, and then its effect can happen again",
		"The flight ended and the retention of its receipt is over. A tombstone still guards the key: the effect is not run again."},
	{PreconditionFailed, http.StatusPreconditionFailed, false, "The flight is not in that state",
		"read the flight again, look whether your decision still stands, and send its new ETag",
		"The flight has changed since it was looked at, or its state does not allow this. Nothing was changed."},
	{PayloadTooLarge, http.StatusRequestEntityTooLarge, false, "The request is too large",
		"an input may have 256 KiB; of a receipt send the beginning with truncated, size and digest",
		"The body is larger than this route takes. Nothing was changed."},
	{WrongDeployment, http.StatusMisdirectedRequest, false, "This is another deployment",
		"use the address of one deployment only, or start a new client",
		"The request names the deployment that its caller belongs to, and this server is of another one, which knows nothing of what the first one did. Nothing was read or changed."},
	{Conflict, http.StatusUnprocessableEntity, false, "The key belongs to another input",
		"if the fields that differ are generated, leave them out of the fingerprint, or let the key alone decide (fingerprint none; KeyDecides in the clients); if the intent differs, use another id",
		"The key was first used with another input. Nothing was run, and no receipt is given for an input that it does not belong to."},
	{FlightFailed, http.StatusFailedDependency, false, "The flight ended without success",
		"the answer is final and every repeat gets it; another try is a new intent with an id of its own, or, where there is no receipt and the input is not erased, flightd flights retry",
		"The provider refused, the retries are spent, or the flight was cancelled. The flight is in the body."},
	{PreconditionRequired, http.StatusPreconditionRequired, false, "If-Match is required",
		"read the flight, decide by what you see, and send its ETag in If-Match",
		"An operator's decision must name the version of the flight that it was made on. Nothing was changed."},
	{RateLimited, http.StatusTooManyRequests, true, "Too many requests",
		"wait as long as Retry-After says",
		"More requests than allowed. Nothing was changed."},
	{TooManyOpen, http.StatusTooManyRequests, true, "Too many opens are unfinished",
		"report or abandon what was opened before, wait as long as Retry-After says, then ask again with the same key and nonce",
		"This key remembers as many used nonces as it may, or too many attempts are open at once. Nothing was opened."},
	{Internal, http.StatusInternalServerError, true, "flightd failed to answer",
		"ask again; if it stays, look into the server's log for the request id",
		"Something in flightd failed that should not. Asking again with the same key and nonce is safe."},
	{NoLeader, http.StatusServiceUnavailable, true, "The ledger cannot decide now",
		"ask again with the same key and nonce",
		"The ledger has no leader, its disk is full, or it was too slow. No effect may start without it. Asking again is safe."},
	{LeaseUnavailable, http.StatusServiceUnavailable, true, "Leases cannot be given now",
		"ask again with the same key and nonce",
		"etcd cannot be reached or has lost its past. No effect may start without a lease. Asking again is safe."},
	{ReportPending, http.StatusServiceUnavailable, true, "The report is not committed yet",
		"send the same report again until it is answered with 200",
		"The outcome has been taken but is not in the ledger yet. Reporting it again is harmless."},
	{Draining, http.StatusServiceUnavailable, true, "The server is stopping",
		"ask another node, or this one a little later",
		"The node is shutting down and takes no new work. Nothing was changed."},
}

// Classes gives the whole table, in the order of the statuses.
func Classes() []Class { return slices.Clone(classes) }

// Class gives what the table says of a code.
func (c Code) Class() (Class, bool) {
	for i := range classes {
		if classes[i].Code == c {
			return classes[i], true
		}
	}
	return Class{}, false
}
