// Package client runs effects once through a flightd server: the Go client of the HTTP interface.
//
// Most programs need [Connect] and [Do], or the untyped [Client.Do]. [Client.Open], [Client.Report] and the other
// methods send single requests, for tools. A Client keeps one session for its attempts and renews it. Trust in the
// session counts from when the answered request was sent. A Client never changes its deployment.
//
// Package runner has the steps of a call. attempt.go is its transport over HTTP, http.go sends the requests, and picker.go
// chooses the server for each of them.
//
// # Requests
//
// Each request can be repeated safely, because of a nonce, a fencing token or a version. Only Client.ask repeats
// requests: net/http repeats none with a body, and follows no redirect. An error says whether a server may have
// received the request; the request was certainly not sent only when there was no connection.
//
// # Nonces
//
// A session's table has each nonce from before its first open is sent until the ledger's final answer. A nonce that is
// given up before its effect has started is abandoned, unless the last answer was final (isFinal), and stays in the
// table until the session ends. Where all answers came from nodes that had not proposed the open (isUnproposed), a copy
// that the network made may still open an attempt until not_after: the session is renewed until a renewal was sent after that,
// and a nonce without a session is abandoned then (leftOpens). A renewal lists the attempts that are open under the
// session. listedActionFor decides about each of them:
//
//	state of the nonce                     action for its attempt
//	no answer yet, or attempt held         none
//	report in the spool                    none
//	given up                               abandon
//	reported as not_done                   repeat the report, when two renewals in a row list it
//	any other, or unknown                  report unknown, when two renewals in a row list it
//
// # Crashes
//
//	the process dies                       result
//	before the open was sent               nothing has happened
//	after it, before its answer            the session ends by its time to live, and the recovery policy decides about the
//	                                       lost attempt; its effect did not start, so verify finds nothing
//	after it was given up, before its      the same; a live process repeats the abandon, and an abandon that arrives after
//	abandon was answered                   the session's end still removes the doubt
//	after the answer, before the effect    the same
//	after the effect, before the report    the recovery policy decides; no protocol can remove this doubt
//	after the report failed, before it     the same; the report is spooled right after its first failure
//	was spooled
//	after it was spooled                   the next client with this spool directory sends it
//	after the report was answered          the receipt is stored; a file left in the spool is sent twice, harmlessly
package client
