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
	OpVerdict
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
	Verb     flight.Verb     // Verdict, Resolve
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
	fence  flight.Token
	nonce  flight.Nonce // of the newest attempt
	used   string       // all used nonces, concatenated
	open   bool         // the newest attempt has not reported
	own    bool         // the newest attempt may have had an unreported effect
	others bool         // an earlier attempt may have had an unreported effect
	end    flight.State // StateAbsent until the flight is over
	effect string       // of its receipt
	said   flight.Verb  // the last finding of a person or a look-up
	heard  uint8        // set of the outcomes that the newest attempt has reported
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
	if result.Decision != flight.NoDecision {
		if next, ok := r.known(o, result); ok {
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
		if next, ok := r.known(o, result); ok {
			all = append(all, next)
		}
	}
	switch o.Kind {
	case OpOpen:
		try(Result{Decision: flight.Proceed, Token: r.nextToken()})
		try(Result{Decision: flight.Doubtful})
		try(Result{Decision: flight.Look})
	case OpReport:
		for _, end := range [...]flight.State{flight.Absent, flight.StateSucceeded, flight.StateFailed} {
			try(Result{Decision: flight.Accepted, State: end})
		}
	case OpAbandon, OpVerdict, OpResolve:
		try(Result{Decision: flight.Accepted})
		try(Result{Decision: flight.Accepted, State: flight.StateFailed})
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

func (r register) known(o Op, result Result) (register, bool) {
	switch o.Kind {
	case OpOpen:
		return r.opened(o, result)
	case OpReport:
		return r.reported(o, result)
	case OpAbandon:
		return r.abandoned(o, result)
	case OpVerdict, OpResolve:
		return r.settled(o, result)
	}
	return r, r.shows(result)
}

// matches reports whether the state and effect of an answer are possible in r.
func (r register) shows(result Result) bool {
	switch s := result.State; {
	case s.Terminal() || r.end != flight.Absent:
		return s == r.end && result.Effect == r.effect
	case s == flight.InDoubt:
		return r.own || r.others
	}
	return true
}

func (r register) opened(o Op, result Result) (register, bool) {
	switch result.Decision {
	case flight.Conflict:
		return r, true
	case flight.Replay:
		return r, r.end != flight.Absent && r.shows(result)
	case flight.Proceed:
	case flight.Doubtful, flight.Look:
		r.use(o.Nonce)
		return r, r.end == flight.Absent && (r.own || r.others)
	default:
		return r, r.end == flight.Absent
	}
	if r.end != flight.Absent {
		return r, false
	}
	if r.open && r.nonce == o.Nonce {
		return r, result.Token == r.fence
	}
	clear := !r.own && !r.others
	if result.Token != r.nextToken() || r.isUsed(o.Nonce) || !clear && o.Recovery != flight.Resend {
		return r, false
	}
	r.others = r.others || r.own
	r.fence, r.nonce = result.Token, o.Nonce
	r.use(o.Nonce)
	r.open, r.own = true, true // from now on its effect may happen
	r.said, r.heard = flight.NoVerb, 0
	return r, true
}

func (r register) reported(o Op, result Result) (register, bool) {
	fenced := o.Token != r.fence || r.end != flight.Absent
	switch {
	case result.Decision != flight.Accepted:
		return r, fenced
	case o.Token != r.fence:
		return r, false
	case r.end != flight.Absent: // a repeat of an accepted report
		return r, o.Outcome != flight.Succeeded || r.end == flight.StateSucceeded && o.Effect == r.effect
	}
	if r.heard&(1<<o.Outcome) != 0 {
		return r, result.State == flight.Absent || r.shows(result) // a repeat
	}
	r.open = false
	r.heard |= 1 << o.Outcome
	switch o.Outcome {
	case flight.Succeeded:
		r.end, r.effect = flight.StateSucceeded, o.Effect
	case flight.Refused:
		r.own = false
		if result.State == flight.StateFailed {
			r.end = flight.StateFailed
		} else if !r.others {
			return r, false
		}
	case flight.NotDone:
		r.own = false
		r.spend(result)
	default:
		r.own = true
	}
	known := result.State != flight.Absent
	return r, !known || r.shows(Result{State: result.State, Effect: r.effect})
}

// endIfRetriesExhausted ends a flight as failed if the answer shows that its retries are exhausted.
func (r *register) spend(result Result) {
	if result.State == flight.StateFailed && !r.own && !r.others {
		r.end = flight.StateFailed
	}
}

// abandoned applies an Abandon, which is always accepted.
func (r register) abandoned(o Op, result Result) (register, bool) {
	if result.Decision != flight.Accepted {
		return r, false
	}
	r.use(o.Nonce)
	if o.Nonce == r.nonce && r.open && r.end == flight.Absent {
		r.open, r.own = false, false
		r.heard |= 1 << flight.NotDone
		r.spend(result)
	}
	return r, true
}

// resolved applies the finding of a look-up or of a person.
func (r register) settled(o Op, result Result) (register, bool) {
	if result.Decision != flight.Accepted {
		return r, true
	}
	if r.said == o.Verb && (r.end != flight.Absent || !r.own && !r.others) {
		return r, true // a repeat
	}
	if r.end != flight.Absent || !r.own && !r.others {
		return r, false
	}
	if o.Verb == flight.NoVerb {
		return r, true // inconclusive
	}
	r.said = o.Verb
	switch o.Verb {
	case flight.Happened:
		r.end, r.effect = flight.StateSucceeded, o.Effect
	case flight.DidNotHappen:
		r.open, r.own, r.others = false, false, false
		r.spend(result)
	case flight.Fail:
		r.end = flight.StateFailed
	}
	return r, true
}
