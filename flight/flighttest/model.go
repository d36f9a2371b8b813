package flighttest

import (
	"fmt"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/flightd/flightd/flight"
)

// OpKind says what a client asked of the register.
type OpKind uint8

// The operations of the register. Cancel, Retry, Free, Expire, Redact, Import and commands that the cluster gives to itself are not
// part of it: a history that holds them is cut there, or judged by Check over the log.
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
	Effect   string          // Report of success, Happened: what names the effect
}

// Result is what the client saw. The zero Result is that of an operation whose answer never came: it may have happened
// or not, then or at any later time.
type Result struct {
	Decision flight.Decision // NoDecision: the answer never came; Get: Accepted
	Token    flight.Token    // with Proceed
	State    flight.State    // of the flight as it was shown; Absent where none was shown
	Effect   string          // of the receipt that was shown
}

// Never is the time of return of an operation whose answer never came.
const Never = int64(math.MaxInt64)

// register is what the history of one key may have led to. That the session of an attempt has ended, or that its time is
// over, no client hears: an attempt that has not reported may have been lost at any time.
type register struct {
	fence  flight.Token
	nonce  flight.Nonce // of the newest attempt
	used   string       // all nonces that open nothing more, one after the other
	open   bool         // the newest attempt has not reported
	own    bool         // it may have had an effect that nobody knows of
	others bool         // an earlier one may have
	end    flight.State // Absent while the flight lives
	effect string       // of its receipt
	said   flight.Verb  // what a person or a look-up said last
	heard  uint8        // the outcomes that the newest attempt has reported, a bit each
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

// step gives the registers that r may be after the operation: none where the result is a lie.
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

// possible is what an operation without an answer may have done.
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

// nextToken is the token of the next attempt; all clients of a history speak to one ledger, which was never restored.
func (r register) nextToken() flight.Token {
	return flight.Token{StoreEpoch: 1, Number: r.fence.Number + 1}
}

// isUsed reports whether a nonce opens nothing more.
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

// shows reports whether what a client was shown can be true of r.
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
	r.open, r.own = true, true // from here on it may act
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
	case r.end != flight.Absent: // a repeat, of what was accepted once
		return r, o.Outcome != flight.Succeeded || r.end == flight.StateSucceeded && o.Effect == r.effect
	}
	if r.heard&(1<<o.Outcome) != 0 {
		return r, result.State == flight.Absent || r.shows(result) // a repeat says nothing new
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

// spend ends a flight whose retries turned out to be spent.
func (r *register) spend(result Result) {
	if result.State == flight.StateFailed && !r.own && !r.others {
		r.end = flight.StateFailed
	}
}

// abandoned is the word of the caller that made the nonce. It is never refused.
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

// settled is a verdict or the word of a person.
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
		return r, true // a look-up that could not find out
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
