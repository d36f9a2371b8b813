package protocolmodel

// The states of a flight, as far as the models tell them apart.
const (
	free    = iota // nothing is open: the next Open gets an attempt
	running        // the newest attempt is open
	inDoubt        // an attempt was lost under policy hold or verify
	done           // a receipt is stored
)

// The states of an attempt.
const (
	attemptOpen    = 1 + iota
	attemptNotDone // abandoned by its caller
	attemptLost    // ended by rule 3 (c) or (d)
	attemptDone    // reported
	attemptUnknown // reported unknown by its owner
)

// The states of a session in etcd.
const (
	sessionNone = iota
	sessionAlive
	sessionExpired
	sessionRevoked
)

// The answers of the ledger to an Open.
const (
	answerNone = iota
	answerProceed
	answerBusy
	answerRefused // replay, conflict, expired or in doubt
)

func bit(i int) uint8 { return 1 << uint(i) }

func has(set uint8, i int) bool { return set&bit(i) != 0 }
