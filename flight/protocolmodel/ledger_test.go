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

// The answers of the ledger to an Open.
const (
	answerNone    = iota
	answerProceed // the newest attempt is open, and of this nonce
	answerBusy    // it is open, and of another
	answerRefused // replay: a receipt is stored
	answerUsed    // the nonce opens nothing any more
	answerInDoubt
	answerFree // an attempt may open
)

type attempt struct{ nonce, status uint8 }

// ledger is one flight with the rules that all machines share: Open, report, Abandon and the end of a lost attempt. A
// machine adds its own conditions, and what else it knows of an attempt. Nonces are numbers below 8.
type ledger struct {
	flight, attemptCount uint8
	used                 uint8 // nonces
	attempts             [4]attempt
}

// newest returns the newest attempt; the flight must have one.
func (l *ledger) newest() *attempt { return &l.attempts[l.attemptCount-1] }

// isNewest reports whether the newest attempt is of a nonce.
func (l *ledger) isNewest(nonce int) bool {
	return l.attemptCount > 0 && int(l.newest().nonce) == nonce
}

// isOpen reports whether the open attempt is of a nonce.
func (l *ledger) isOpen(nonce int) bool { return l.flight == running && l.isNewest(nonce) }

// attemptOf returns the last attempt of a nonce, or -1.
func (l *ledger) attemptOf(nonce int) int {
	for k := int(l.attemptCount) - 1; k >= 0; k-- {
		if int(l.attempts[k].nonce) == nonce {
			return k
		}
	}
	return -1
}

// answer is rule 6: the ledger's answer to the Open of a nonce. It changes nothing.
func (l *ledger) answer(nonce int) uint8 {
	switch {
	case l.flight == done:
		return answerRefused
	case l.isOpen(nonce):
		return answerProceed
	case has(l.used, nonce):
		return answerUsed
	case l.flight == inDoubt:
		return answerInDoubt
	case l.flight == running:
		return answerBusy
	}
	return answerFree
}

// open opens an attempt, where answer is answerFree.
func (l *ledger) open(nonce int) {
	l.attempts[l.attemptCount] = attempt{uint8(nonce), attemptOpen}
	l.attemptCount++
	l.flight = running
	l.used |= bit(nonce)
}

// report stores the receipt, if the attempt is the newest.
func (l *ledger) report(attempt int) {
	if l.flight != done && attempt >= 0 && attempt == int(l.attemptCount)-1 {
		l.newest().status, l.flight = attemptDone, done
	}
}

// abandon marks a nonce as used, and frees the flight, if the newest attempt is of this nonce.
func (l *ledger) abandon(nonce int) {
	l.used |= bit(nonce)
	if l.flight != done && l.isNewest(nonce) {
		l.newest().status, l.flight = attemptNotDone, free
	}
}

// abandonUnlessFree is abandon, but a lost attempt stays lost where its flight is free again.
func (l *ledger) abandonUnlessFree(nonce int) {
	if l.flight == free {
		l.used |= bit(nonce)
		return
	}
	l.abandon(nonce)
}

// lose ends the newest attempt with a status of unknown outcome.
func (l *ledger) lose(status uint8, hold bool) {
	l.newest().status, l.flight = status, free
	if hold {
		l.flight = inDoubt
	}
}

// forgetOlder clears all attempts but the newest, for a machine that reads no other.
func (l *ledger) forgetOlder() {
	for k := range int(l.attemptCount) - 1 {
		l.attempts[k] = attempt{}
	}
}

func bit(i int) uint8 { return 1 << uint(i) }

func has(set uint8, i int) bool { return set&bit(i) != 0 }
