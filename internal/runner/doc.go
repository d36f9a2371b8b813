// Package runner tells the story of a call once: ask for the right to act, act, report, and do what the answer says, as often
// as it says so. It knows no ledger, no etcd and no HTTP. Four verbs are all that it needs: Open, Report, Verify and Renew.
// Package executor implements them over claims and the ledger of its own process, package client over HTTP.
//
// # Files
//
//	runner.go   the four verbs; the story of one call, top to bottom; start and stop
//	call.go     callers of one key in this process share one call; a caller that leaves ends only its own wait; a handler that
//	            asks for its own key would wait for itself
//	perform.go  handlers and look-ups: their contexts, time-outs, and whatever goes wrong in there
//
// # What is true if the process dies on this line
//
//	while Open is under way       nothing was sent. An attempt that was opened ends with its session, and the recovery policy
//	                              decides, because nobody else can know that nothing was sent
//	before the handler's send     the same
//	from the handler's first      the effect may have happened: the recovery policy decides. This is the doubt that nobody
//	byte to the answer of Report  can remove
//	after Report's answer         the receipt is in the ledger, or the report waits on a disk
//	during a look-up              a look-up changes nothing at the provider, and the next caller asks again
package runner
