package flighttest

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/flightd/flightd/flight"
)

// OpKind is the type of an operation on the register.
type OpKind uint8

// The operations of the register. Cancel, Retry, FreeKey, Expire, Redact, Import and the cluster's own commands are not
// part of it: a history with such a command is split there, or checked with Check over the log.
const (
	OpOpen OpKind = iota + 1
	OpReport
	OpAbandon
	OpReportFinding
	OpResolve
	OpGet // a linearizable read; a read that may be stale promises less
)

// Op is one operation of a client on the flight of one key.
type Op struct {
	Key      string
	Kind     OpKind
	Recovery flight.Recovery // of the key's policy, the same in all its operations
	Nonce    flight.Nonce    // Open, Abandon
	Token    flight.Token    // Report
	Outcome  flight.Outcome  // Report
	Finding  flight.Finding  // ReportFinding, Resolve
	Effect   string          // Report of success, FindingHappened: the identity of the effect
}

// Result is the answer that a client received. The zero Result means that no answer arrived: the operation may have been
// applied or not, then or at any later time.
type Result struct {
	Decision flight.Decision // DecisionNone: no answer arrived; Get: DecisionAccepted
	Token    flight.Token    // with DecisionProceed
	State    flight.State    // of the flight in the answer; StateAbsent if the answer has none
	Effect   string          // of the receipt in the answer
}

// Never is the return time of an operation without an answer.
const Never = int64(math.MaxInt64)

// register is one possible state of a key after a history. Clients cannot observe that the session of an attempt has ended or
// that its time is over: an attempt that has not reported may have been marked lost at any time.
type register struct {
	fence            flight.Token
	nonce            flight.Nonce   // of the newest attempt
	used             string         // all used nonces, concatenated
	open             bool           // the newest attempt has not reported
	newestTainted    bool           // the newest attempt may have had an unreported effect
	earlierTainted   bool           // an earlier attempt may have had an unreported effect
	final            flight.State   // StateAbsent until the flight is over
	effect           string         // of its receipt
	lastFinding      flight.Finding // the last finding of a person or a look-up
	reportedOutcomes uint8          // set of the outcomes that the newest attempt has reported
}

// Model is the flight as a linearizable register, one for each key.
func Model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: partitionByKey,
		Init:      func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			return state.(register).step(input.(Op), output.(Result))
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
	return m.ToModel()
}

func partitionByKey(history []porcupine.Operation) [][]porcupine.Operation {
	at := make(map[string]int)
	var parts [][]porcupine.Operation
	for _, o := range history {
		key := o.Input.(Op).Key
		i, ok := at[key]
		if !ok {
			i = len(parts)
			at[key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], o)
	}
	return parts
}

// step returns the possible registers after the operation; none if the result is impossible.
func (r register) step(o Op, result Result) []any {
	if result.Decision != flight.DecisionNone {
		if next, ok := r.answered(o, result); ok {
			return []any{next}
		}
		return nil
	}
	states := []any{r}
	for _, next := range r.possible(o) {
		if !slices.Contains(states, any(next)) {
			states = append(states, next)
		}
	}
	return states
}

// possible returns the registers to which an operation without an answer may have led.
func (r register) possible(o Op) []register {
	var all []register
	try := func(result Result) {
		if next, ok := r.answered(o, result); ok {
			all = append(all, next)
		}
	}
	switch o.Kind {
	case OpOpen:
		try(Result{Decision: flight.DecisionProceed, Token: r.nextToken()})
		try(Result{Decision: flight.DecisionInDoubt})
		try(Result{Decision: flight.DecisionVerify})
	case OpReport:
		for _, end := range [...]flight.State{flight.StateAbsent, flight.StateSucceeded, flight.StateFailed} {
			try(Result{Decision: flight.DecisionAccepted, State: end})
		}
	case OpAbandon, OpReportFinding, OpResolve:
		try(Result{Decision: flight.DecisionAccepted})
		try(Result{Decision: flight.DecisionAccepted, State: flight.StateFailed})
	}
	return all
}

// nextToken is the token of the next attempt. All clients of a history use one ledger that was never restored.
func (r register) nextToken() flight.Token {
	return flight.Token{StoreEpoch: 1, Number: r.fence.Number + 1}
}

// isUsed reports whether a nonce is used up.
func (r register) isUsed(n flight.Nonce) bool {
	for i := 0; i < len(r.used); i += len(n) {
		if r.used[i:i+len(n)] == string(n[:]) {
			return true
		}
	}
	return false
}

func (r *register) use(n flight.Nonce) {
	if !r.isUsed(n) {
		r.used += string(n[:])
	}
}

func (r register) answered(o Op, result Result) (register, bool) {
	switch o.Kind {
	case OpOpen:
		return r.opened(o, result)
	case OpReport:
		return r.reported(o, result)
	case OpAbandon:
		return r.abandoned(o, result)
	case OpReportFinding, OpResolve:
		return r.resolved(o, result)
	}
	return r, r.matches(result)
}

// matches reports whether the state and effect of an answer are possible in r.
func (r register) matches(result Result) bool {
	switch s := result.State; {
	case s.Terminal() || r.final != flight.StateAbsent:
		return s == r.final && result.Effect == r.effect
	case s == flight.StateInDoubt:
		return r.newestTainted || r.earlierTainted
	}
	return true
}

func (r register) opened(o Op, result Result) (register, bool) {
	switch result.Decision {
	case flight.DecisionConflict:
		return r, true
	case flight.DecisionReplay:
		return r, r.final != flight.StateAbsent && r.matches(result)
	case flight.DecisionProceed:
	case flight.DecisionInDoubt, flight.DecisionVerify:
		r.use(o.Nonce)
		return r, r.final == flight.StateAbsent && (r.newestTainted || r.earlierTainted)
	default:
		return r, r.final == flight.StateAbsent
	}
	if r.final != flight.StateAbsent {
		return r, false
	}
	if r.open && r.nonce == o.Nonce {
		return r, result.Token == r.fence
	}
	clear := !r.newestTainted && !r.earlierTainted
	if result.Token != r.nextToken() || r.isUsed(o.Nonce) || !clear && o.Recovery != flight.RecoveryResend {
		return r, false
	}
	r.earlierTainted = r.earlierTainted || r.newestTainted
	r.fence, r.nonce = result.Token, o.Nonce
	r.use(o.Nonce)
	r.open, r.newestTainted = true, true // from now on its effect may happen
	r.lastFinding, r.reportedOutcomes = flight.FindingNone, 0
	return r, true
}

func (r register) reported(o Op, result Result) (register, bool) {
	fenced := o.Token != r.fence || r.final != flight.StateAbsent
	switch {
	case result.Decision != flight.DecisionAccepted:
		return r, fenced
	case o.Token != r.fence:
		return r, false
	case r.final != flight.StateAbsent: // a repeat of an accepted report
		return r, o.Outcome != flight.OutcomeSucceeded || r.final == flight.StateSucceeded && o.Effect == r.effect
	}
	if r.reportedOutcomes&(1<<o.Outcome) != 0 {
		return r, result.State == flight.StateAbsent || r.matches(result) // a repeat
	}
	r.open = false
	r.reportedOutcomes |= 1 << o.Outcome
	switch o.Outcome {
	case flight.OutcomeSucceeded:
		r.final, r.effect = flight.StateSucceeded, o.Effect
	case flight.OutcomeRefused:
		r.newestTainted = false
		if result.State == flight.StateFailed {
			r.final = flight.StateFailed
		} else if !r.earlierTainted {
			return r, false
		}
	case flight.OutcomeNotDone:
		r.newestTainted = false
		r.endIfRetriesExhausted(result)
	default:
		r.newestTainted = true
	}
	known := result.State != flight.StateAbsent
	return r, !known || r.matches(Result{State: result.State, Effect: r.effect})
}

// endIfRetriesExhausted ends a flight as failed if the answer shows that its retries are exhausted.
func (r *register) endIfRetriesExhausted(result Result) {
	if result.State == flight.StateFailed && !r.newestTainted && !r.earlierTainted {
		r.final = flight.StateFailed
	}
}

// abandoned applies an Abandon, which is always accepted.
func (r register) abandoned(o Op, result Result) (register, bool) {
	if result.Decision != flight.DecisionAccepted {
		return r, false
	}
	r.use(o.Nonce)
	if o.Nonce == r.nonce && r.open && r.final == flight.StateAbsent {
		r.open, r.newestTainted = false, false
		r.reportedOutcomes |= 1 << flight.OutcomeNotDone
		r.endIfRetriesExhausted(result)
	}
	return r, true
}

// resolved applies the finding of a look-up or of a person.
func (r register) resolved(o Op, result Result) (register, bool) {
	if result.Decision != flight.DecisionAccepted {
		return r, true
	}
	if r.lastFinding == o.Finding && (r.final != flight.StateAbsent || !r.newestTainted && !r.earlierTainted) {
		return r, true // a repeat
	}
	if r.final != flight.StateAbsent || !r.newestTainted && !r.earlierTainted {
		return r, false
	}
	if o.Finding == flight.FindingNone {
		return r, true // inconclusive
	}
	r.lastFinding = o.Finding
	switch o.Finding {
	case flight.FindingHappened:
		r.final, r.effect = flight.StateSucceeded, o.Effect
	case flight.FindingNotHappened:
		r.open, r.newestTainted, r.earlierTainted = false, false, false
		r.endIfRetriesExhausted(result)
	case flight.FindingFail:
		r.final = flight.StateFailed
	}
	return r, true
}
