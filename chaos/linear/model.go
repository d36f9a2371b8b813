package linear

import (
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/flightd/flightd/flight"
)

// The rules about the order of a key's operations.
const (
	NoOrder         = "no order of the operations explains the answers" // no single rule explains it either
	ReadWentBack    = "a read went back in time"
	AckedIsAbsent   = "an acknowledged flight is absent"
	TwoGenerations  = "two generations with one free or retry"
	NoEffect        = "an acknowledged free or retry had no effect"
	ReceiptChanged  = "a receipt changed"
	BytesCameBack   = "redacted bytes came back"
	NumberWrong     = "an attempt has a number that is not its own"
	ActedTwice      = "an attempt was opened where none may be"
	ReportLost      = "a report was acknowledged that came too late"
	ResolveLost     = "a resolve was acknowledged that came too late"
	DecisionAllowed = "a decision was acknowledged that the flight does not allow"
)

var orderRules = []string{ReadWentBack, AckedIsAbsent, TwoGenerations, NoEffect, ReceiptChanged, BytesCameBack, NumberWrong, ActedTwice, ReportLost, ResolveLost, DecisionAllowed}

// The words of states. A scheduled flight counts as ready.
var (
	absent, ready, running, inDoubt       = flight.StateAbsent.String(), flight.StateReady.String(), flight.StateRunning.String(), flight.StateInDoubt.String()
	succeeded, failed, cancelled, expired = flight.StateSucceeded.String(), flight.StateFailed.String(), flight.StateCancelled.String(), flight.StateExpired.String()
)

// register is one possible state of a key whose recovery is hold.
type register struct {
	version         flight.Version // of the last record that was shown
	changed         bool           // since then
	generation      uint32
	fence, newest   uint32 // the greatest attempt number of the key; that of the generation's newest attempt
	state           string
	outcome, digest string // of the receipt
	cancel          bool   // was requested
	redacted        bool
	resolved        string // the last resolve that was accepted
	begunBy         string // Free or Retry; "": the first generation
}

func (r *register) over() bool {
	return slices.Contains([]string{succeeded, failed, cancelled, expired}, r.state)
}

// model is the register without one rule.
func model(waived string) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{register{generation: 1, state: absent}} },
		Step: func(state, input, _ any) (next []any) {
			r, o := state.(register), input.(*Op)
			after, broken := r.apply(o)
			mayBeNone := o.Unknown || o.Code != "" // a client repeats requests: an earlier try may have been carried out before a refusal
			final := o.Kind == Open && !o.Unknown
			switch {
			case final && o.Code == "in_doubt" && r.state != inDoubt && r.state != running, final && o.Code == "expired" && !r.over():
				if broken == "" { // an earlier try has opened an attempt
					return []any{after}
				}
				return nil
			case mayBeNone && broken == "" && after != r:
				return []any{r, after}
			case broken == "":
				return []any{after}
			case broken == waived && o.Answer != nil:
				return []any{r, after} // it was acknowledged, and may have been carried out or not
			case mayBeNone:
				return []any{r}
			}
			return nil
		},
	}
	return m.ToModel()
}

// show takes a record over. Nobody sees that a session or a retention ends: a flight that runs may be in doubt, and one that is over may have
// expired. Late reports, which are kept as evidence, raise the version.
func (r register) show(a *Record) (_ register, broken string) {
	v, state := versionOf(a.Version), a.State
	if state == flight.StateScheduled.String() {
		state = ready
	}
	none, unused := v == flight.Version{}, r.state == absent && r.generation == 1
	ended := r.state == running && state == inDoubt || r.over() && state == expired
	if broken = first(rule{none && !unused, AckedIsAbsent}, rule{r.version.After(v) || v == r.version && r.changed && !none, ReadWentBack}); broken != "" {
		return r, broken
	}
	if state == absent && r.state == absent { // a problem has no generation
		r.version, r.changed = v, false
		return r, ""
	}
	broken = first(rule{state == absent || a.Generation > r.generation, TwoGenerations}, rule{a.Generation < r.generation, NoEffect},
		rule{r.outcome != "" && (a.Outcome != r.outcome || a.Digest != r.digest), ReceiptChanged},
		rule{r.redacted && a.Bytes, BytesCameBack},
		rule{state != expired && a.Attempt != r.newest, NumberWrong},
		rule{state != r.state && !ended || r.outcome == "" && a.Outcome != "", NoOrder})
	if broken != "" {
		return r, broken
	}
	r.version, r.changed, r.state, r.redacted = v, false, state, r.redacted || a.Redacted
	return r, ""
}

// rule is a rule, and whether an answer breaks it.
type rule struct {
	isBroken bool
	name     string
}

// first returns the name of the first rule that is broken; "": none is.
func first(rules ...rule) string {
	if i := slices.IndexFunc(rules, func(r rule) bool { return r.isBroken }); i >= 0 {
		return rules[i].name
	}
	return ""
}

// apply carries an operation out, and names the rule that forbids that. A repeat changes nothing.
func (r register) apply(o *Op) (after register, broken string) {
	if o.Kind == Read || o.Kind == List {
		return r.show(o.Answer)
	}
	after, after.changed = r, true
	same, seen, repeats := o.Generation == r.generation, versionOf(o.Version), false
	live := same && !r.over() && r.state != absent
	switch o.Kind {
	case Open:
		after.fence++
		after.newest, after.state = after.fence, running
		broken = first(rule{r.state != absent && r.state != ready, ActedTwice}, rule{o.Answer != nil && o.Answer.Generation != r.generation, TwoGenerations},
			rule{o.Answer != nil && o.Answer.Attempt != after.fence, NumberWrong})
	case Report:
		repeats = same && o.Attempt == r.newest && r.over() && o.Digest != "" && o.Digest == r.digest
		broken = first(rule{!live || o.Attempt != r.newest, ReportLost})
		after.settle(map[string]string{"succeeded": succeeded, "refused": failed, "not_done": ready, "unknown": inDoubt}[o.Word], o)
	case Resolve:
		after.resolved, after.version = o.Version+o.Word+o.Digest, seen
		repeats = same && r.resolved == after.resolved
		inTime := seen.After(r.version) || seen == r.version && !r.changed
		broken = first(rule{!inTime || !same || r.state != inDoubt && r.state != running, ResolveLost})
		after.settle(map[string]string{"happened": succeeded, "not_happened": ready, "fail": failed}[o.Word], o)
	case Cancel:
		if after.cancel = true; r.state == ready {
			after.state = cancelled
		}
		repeats = same && (r.state == cancelled || r.cancel && !r.over())
		broken = first(rule{!live, DecisionAllowed})
	case Redact:
		after.redacted = true
		repeats = same && (r.redacted || r.state == expired)
		broken = first(rule{!same || !r.over(), DecisionAllowed})
	case Free, Retry:
		after = register{version: r.version, changed: true, generation: r.generation + 1, fence: r.fence, state: absent, begunBy: o.Kind}
		if o.Kind == Retry {
			after.state = ready
		}
		repeats = o.Generation+1 == r.generation && o.Kind == r.begunBy
		if o.Answer != nil && o.Answer.Generation <= o.Generation {
			return r, NoEffect
		}
		broken = first(rule{!same || !r.over() || o.Kind == Retry && (r.outcome != "" || r.state == expired || r.redacted), DecisionAllowed})
	}
	if repeats {
		return r, ""
	}
	return after, broken
}

// settle ends an attempt or a doubt.
func (r *register) settle(state string, o *Op) {
	if r.state = state; state == ready && r.cancel {
		r.state = cancelled
	}
	if o.Digest != "" {
		r.outcome, r.digest = map[string]string{succeeded: "succeeded", failed: "refused"}[state], o.Digest
	}
}
