// Package effect has the types that handlers and their callers use, with an executor in the same process and with one
// behind HTTP: the call, the attempt, the result, and the errors, whose types say how to go on.
//
// It imports package flight, and neither etcd nor raft, so that clients stay small.
//
// # From an error to an outcome
//
// A handler's error does not prove that nothing happened. [Classify] decides which outcome it means. Transport and
// Sending record the moment right before the effect is sent:
//
//	the handler returned            neither is used   Transport or Sending in use,   sent
//	                                                  not sent
//	nil                             succeeded         succeeded                      succeeded
//	Refused(err)                    refused           refused                        refused
//	NotDone(err)                    not_done          not_done                       not_done
//	any other error, a panic, or    unknown           not_done                       unknown
//	the end of its goroutine
//
// An *Unsettled of another flight that the handler ran counts as any other error, even if it wraps NotDone: a handler
// that has sent nothing else wraps it in NotDone again. The NotDone of FromHTTP is about one answer. It counts as any
// other error when another request through Transport has, or may have, changed something, or is still running.
//
// After Classify, Transport and Sending return errors: goroutines that a handler has left behind start nothing. Before
// it they reject a second effect after a request through Transport with unknown outcome, unless the recovery is resend:
// the first effect may have happened. The attempt's outcome stays unknown.
package effect
