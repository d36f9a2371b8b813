// Package effect holds what a handler and its caller see of flightd, whether the executor runs in the same process or
// behind HTTP: the call, the attempt that travels with the effect, the result, and the errors that say what a person
// or a program may do next.
//
// It stands just above package flight and pulls in neither etcd nor raft, so that a client stays small.
//
// # From an error to an outcome
//
// A handler's error does not say that nothing happened. Which outcome it means is decided by [Classify] from one
// question: may the effect have left? Transport and Sending note the moment before it does:
//
//	the handler returned            nothing noted     Transport or Sending in use,   noted
//	                                                  but nothing noted
//	nil                             succeeded         succeeded                      succeeded
//	Refused(err)                    refused           refused                        refused
//	NotDone(err)                    not_done          not_done                       not_done
//	any other error, a panic, or    unknown           not_done                       unknown
//	the end of its goroutine
//
// An *Unsettled of another flight, which the handler ran, counts as "any other error", although NotDone may be inside it: a
// handler that has sent nothing else wraps it in NotDone. The NotDone that FromHTTP makes of one answer counts so, too, where
// another request through Transport has changed something, or may have, or is still on its way.
//
// From then on Transport and Sending refuse: what a handler left running when it returned starts nothing. Before that they
// refuse another effect after a request through Transport whose outcome is unknown, unless the recovery is resend: the first one
// may have happened. The attempt's outcome stays unknown then.
package effect
