// Package runner has the steps of a call: open an attempt, act, report, and follow the answer, as often as the
// answers require. It depends on no ledger, no etcd and no HTTP. The interfaces Transport and Attempt are all that it
// needs. Package executor implements them over claims and the ledger of its own process, package client over HTTP.
//
// # Files
//
//	runner.go    the interfaces; the steps of one call, from top to bottom; start and stop
//	call.go      callers of one key in this process share one call; a caller that leaves ends only its own wait; a handler
//	             that calls Do for its own key would wait for itself and is rejected
//	handler.go   handlers and look-ups: their contexts, time-outs, panics and ended goroutines
//
// # What is true if the process dies on this line
//
//	during Open                   nothing was sent. An attempt that was opened ends with its session, and the recovery policy
//	                              decides, because no other process knows that nothing was sent
//	before the handler's send     the same
//	from the handler's first      the effect may have happened: the recovery policy decides. Nothing can remove this doubt
//	byte to the answer of Report
//	after the answer of Report    the receipt is in the ledger, or the report is on a disk
//	during a look-up              a look-up changes nothing at the provider, and the next caller looks up again
package runner
