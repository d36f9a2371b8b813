// Package client runs effects once through a flightd server: the Go client of the HTTP interface.
//
// [Client.Do], and the typed [Do] above it, is the whole story for most programs; [Client.Open], [Client.Report] and
// the other methods are the single requests, for tools. A Client holds one session for all its attempts, renews it,
// and believes in it no longer than the server allowed, counted from when it asked.
//
// # Where it can die
//
//	the process dies                       then
//	before the open was sent               nothing happened
//	after it, before its answer came       the session ends by its time to live; what was opened is lost, and the
//	                                       recovery policy decides: the effect did not start, so verify finds nothing
//	after the answer, before the effect    the same
//	after the effect, before the report    the recovery policy decides; this is the doubt that nobody can remove
//	after the report failed, before the    the same; the spool is written at the first failure, at once
//	spool was written
//	after the spool was written            the next client that connects with this spool directory reports it
//	after the report was answered          the receipt stands; a file left in the spool is reported twice, harmlessly
package client
