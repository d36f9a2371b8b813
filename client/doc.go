// Package client runs effects once through a flightd server: the Go client of the HTTP interface.
//
// [Client.Do], and the typed [Do] above it, is the whole story for most programs; [Client.Open], [Client.Report] and
// the other methods are the single requests, for tools. A Client holds one session for all its attempts, renews it,
// and trusts it no longer than the server allowed, counted from when it asked. It speaks to one deployment as long as it lives.
//
// Package runner has the steps of a call; attempt.go is its transport over HTTP.
//
// # Nonces
//
// The session's table has each nonce from before its first open is sent until the ledger's final word about it. A nonce that
// is given up before its effect has started is abandoned, unless the last answer was final (isFinal), and stays in the table
// until the session ends. A renewal lists the attempts that are open under the session; dutyOf decides about each of them:
//
//	the nonce                              what is done about its attempt
//	its answer is awaited, or it is held   nothing
//	its report lies in the spool           nothing
//	it was given up                        abandon
//	reported as not done                   report again, when two renewals in a row list it
//	anything else, or not known            report unknown, when two renewals in a row list it
//
// # Where it can die
//
//	the process dies                       then
//	before the open was sent               nothing happened
//	after it, before its answer came       the session ends by its time to live; what was opened is lost, and the
//	                                       recovery policy decides: the effect did not start, so verify finds nothing
//	after it was given up, before its      the same; while the process lives it abandons the open again and again, and an
//	abandon was answered                   abandon that comes after the session's end takes the doubt back
//	after the answer, before the effect    the same
//	after the effect, before the report    the recovery policy decides; this is the doubt that nobody can remove
//	after the report failed, before the    the same; the spool is written at the first failure, at once
//	spool was written
//	after the spool was written            the next client that connects with this spool directory reports it
//	after the report was answered          the receipt stands; a file left in the spool is reported twice, harmlessly
package client
