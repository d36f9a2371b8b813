// Package saga says what a saga is, and decides what its driver does next: the pure part, which performs nothing and stores nothing.
// It is for the server and the command line: programs in Go define, work and start sagas with package client/saga.
//
// # Files
//
//	definition.go  a definition: its types, its document, its keys and policies
//	yaml.go        a definition as people write it
//	lint.go        what is wrong with a definition
//	unknown.go     unknown fields, and the names that are probably meant
//	input.go       inputs of steps and conditions: references into the saga's input and earlier receipts
//	decide.go      the next commands of a driver
//
// # The decisions
//
// "Over" is a step that succeeded, was skipped, or was let pass. "Live" is a step or undo whose flight is not over. "Marked" is a
// saga that was cancelled: by a person, or by the driver, whose cause is a failure or the deadline.
//
//	    the saga is, and                                   the driver                        reason
//	 1  over                                               does nothing
//	 2  forward, and its pivot has succeeded               PassPivot, then as row 9          a mark before it has lost
//	    forward, not marked, and
//	 3    a step ended without success; the condition or   Mark, then as row 6               one word for failure, time-out and
//	      the input of a step has no value; an undo was                                      cancel; the first cause is kept. Who finds
//	      created, as in a ledger that a restore has lost                                    an undo must not go forward
//	 4    not all steps are over, and the deadline is      Mark, then as row 6
//	 5    none of rows 3 and 4                             as row 9
//	    forward, marked, and
//	 6    a step is live                                   Cancel the steps that wait        a step that runs, or may have happened,
//	                                                       untainted, and tainted ones       ends by its own policy: only then is
//	                                                       whose undo is safe_if_absent;     it known what there is to undo
//	                                                       wait
//	 7    every step has ended or was never created        BeginUndo, Seal the steps that    not earlier: the pivot may still
//	                                                       were never created, then row 8    succeed, and then the steps behind it run
//	 8  undoing: no undo is live, and a step that          Undo them in the reverse order    one at a time, so that no undo meets the
//	    happened, or has ended unknown, has an undo that   of their ends; one that ended     effect of a later step. A request of a lost
//	    was never created                                  unknown when it has settled       worker may reach the provider until then
//	    undoing: an undo is live                           wait                              an undo that is refused is in doubt
//	    undoing: nothing is left to undo                   End: undone
//	    forward or committed, and
//	 9    the steps that a step needs are over, and its    Submit it                         a step without needs starts at once.
//	      condition is true, or there is none, or (only                                      Without an input the hand-out puts it
//	      committed) its condition has no value                                              in doubt
//	10    all steps are over                               End: done
//	11    none of these                                    wait: for a live step, a timer,
//	                                                       or the deadline
//
// The driver reads the saga, then its steps, then decides. A mark that it sees has stopped the steps that it sees, by a rule of package
// flight: a forward step of a marked saga ends as soon as it surely has not happened. A mark that it only proposes has not, so the saga is
// due again at once. TestExplore runs Decide under the real rules, with everything that workers, providers, persons, slow and dying drivers
// do, and finds each of the wrong deciders of mutants_test.go.
//
// In committed no step ends without success by itself: its flight is in doubt, and a person lets it pass. Skipped steps and timers
// have no flight; their state is computed from the flights of others, which never change back.
//
// # What is true if the driver dies on this line
//
// The driver stores nothing. All commands of a Next are one entry of the log, with the Open of the saga before them, each carries the
// driver's token, and each may be repeated. After the death of a driver the next one opens the saga, so that every late command of the
// first is fenced, reads the flights, and decides anew:
//
//	the driver dies             consequence
//	before its proposal         the next driver decides the same
//	amid its proposal           the entry is in the log, or never will be
//	after a takeover's Open     the saga has an open attempt of a dead driver, and is due at once
package saga
