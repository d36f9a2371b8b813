package saga

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// Finding is one thing that is wrong with a definition.
type Finding struct {
	Step    string `json:"step,omitzero"`    // "": it concerns the whole saga
	Pointer string `json:"pointer,omitzero"` // of the place in the definition
	Detail  string `json:"detail"`
	Hint    string `json:"hint,omitzero"`
}

func (f Finding) String() string {
	text := cmp.Or(f.Pointer, "/") + ": "
	if f.Step != "" {
		text += "step " + f.Step + ": "
	}
	if text += f.Detail; f.Hint != "" {
		text += " (" + f.Hint + ")"
	}
	return text
}

// Lint returns everything that is wrong with a definition, in the order of its steps. A saga starts only with a definition without
// findings: Decide relies on that.
func Lint(d *Definition) []Finding {
	l := &linter{d: d, pivot: d.pivot()}
	l.saga()
	if len(d.Steps) > MaxSteps {
		l.add(-1, "/steps", "", "%d steps; at most %d are allowed", len(d.Steps), MaxSteps)
		return l.findings // sets of positions hold no more
	}
	l.after = d.comesAfter()
	for i := range d.Steps {
		l.name(i)
		l.needs(i)
		l.role(i)
		l.condition(i)
		l.template(i, "/input", d.Steps[i].Input, l.after[i])
		l.policy(i, "", d.Steps[i].RunPolicy)
		if undo := d.Steps[i].Undo; undo != nil {
			l.template(i, "/undo/input", undo.Input, l.after[i]|1<<i)
			l.policy(i, "/undo", undo.RunPolicy)
			l.action(i, "/undo/action", undo.Action)
		}
	}
	return l.findings
}

// Warnings returns the likely mistakes of a definition that Lint accepts.
func Warnings(d *Definition) (all []Finding) {
	for i := range d.Steps {
		s := &d.Steps[i]
		for _, undo := range [...]bool{false, true} {
			if s.Approval != nil || s.Timer != 0 || undo && s.Undo == nil {
				continue
			}
			at, part := fmt.Sprintf("/steps/%d", i), ""
			if undo {
				at, part = at+"/undo", "its undo: "
			}
			if p := d.PolicyOf(i, undo); p.Recovery == flight.RecoveryHold && p.AttemptTimeout == 0 {
				all = append(all, Finding{Step: s.Name, Pointer: at, Detail: part + "recovery hold without a timeout: while its worker hangs, the saga waits and reports nothing",
					Hint: "write a timeout; the document of the action " + d.ActionOf(i, undo) + " does not count for steps"})
			}
		}
	}
	return all
}

type linter struct {
	d        *Definition
	pivot    int // -1: there is none
	after    []set
	findings []Finding
}

// add adds a finding about a step, or about the saga if step is -1. The pointer of a step is relative to the step.
func (l *linter) add(step int, pointer, hint, format string, args ...any) {
	f := Finding{Pointer: pointer, Hint: hint, Detail: fmt.Sprintf(format, args...)}
	if step >= 0 {
		f.Step, f.Pointer = l.d.Steps[step].Name, fmt.Sprintf("/steps/%d%s", step, pointer)
	}
	l.findings = append(l.findings, f)
}

func (l *linter) saga() {
	if why := badWord(l.d.DocumentName()); l.d.Saga == "" {
		l.add(-1, "/saga", "write the name of the saga, such as trip", "the name is missing")
	} else if why != "" {
		l.add(-1, "/saga", "", "%s", why)
	}
	if l.d.Version == 0 {
		l.add(-1, "/version", "versions count from 1", "the version is missing")
	}
	l.duration(-1, "/deadline", l.d.Deadline)
	if len(l.d.Steps) == 0 {
		l.add(-1, "/steps", "", "a saga has at least one step")
	}
	if n := len(l.d.JSON()); n > flight.MaxDocument {
		l.add(-1, "", "", "the definition has %d bytes; at most %d are allowed", n, flight.MaxDocument)
	}
	if _, err := flight.CanonicalJSON(strictjson.Append(nil, l.d)); err != nil {
		l.add(-1, "", "", "%v", err)
	}
}

// badWord returns why a text cannot be a part of a key, or "".
func badWord(text string) string {
	if _, err := flight.MustKey("n/n/i").Step(text); err != nil {
		if invalid, ok := err.(*flight.InvalidError); ok {
			return fmt.Sprintf("%q: %s", text, invalid.Detail)
		}
	}
	return ""
}

func (l *linter) name(i int) {
	s := &l.d.Steps[i]
	why := badWord(s.Name)
	switch {
	case s.Name == "":
		l.add(i, "/name", "", "the name of the step is missing")
	case why == "" && len(s.Name)+len(".undo") > flight.MaxKeyPart:
		l.add(i, "/name", "", "the name has %d bytes; at most %d are allowed", len(s.Name), flight.MaxKeyPart-len(".undo"))
	case why != "":
		l.add(i, "/name", "", "%s", why)
	case strings.HasSuffix(s.Name, ".undo"):
		l.add(i, "/name", "the undo of a step is its field undo", "the name ends with .undo, as only the keys of undos do")
	case l.d.Index(s.Name) != i:
		l.add(i, "/name", "", "step %d has the same name", l.d.Index(s.Name)+1)
	}
	l.action(i, "/action", s.Action)
	for _, undo := range [...]bool{false, s.Undo != nil} {
		if action := l.d.ActionOf(i, undo); len(action) > flight.MaxKeyPart {
			l.add(i, "/name", "name an action", "its action %.40s… has %d bytes; at most %d are allowed", action, len(action), flight.MaxKeyPart)
			break
		}
	}
}

func (l *linter) action(i int, pointer, action string) {
	if why := badWord(action); action != "" && why != "" {
		l.add(i, pointer, "", "%s", why)
	}
}

func (l *linter) needs(i int) {
	s := &l.d.Steps[i]
	for n, name := range s.Needs {
		at := fmt.Sprintf("/needs/%d", n)
		j := l.d.Index(name)
		switch {
		case j < 0:
			l.add(i, at, l.suggestStep(name), "there is no step %q", name)
		case slices.Index(s.Needs, name) != n:
			l.add(i, at, "", "step %s is named twice", name)
		case j == i:
			l.add(i, at, "", "the step needs itself")
		case l.after[j].has(i):
			l.add(i, at, "", "a cycle: step %s comes after this step", name)
		}
	}
}

// suggestStep returns a hint with the step that is probably meant, or "".
func (l *linter) suggestStep(name string) string {
	var names []string
	for i := range l.d.Steps {
		names = append(names, l.d.Steps[i].Name)
	}
	return suggest(name, names)
}

// role checks what the place of a step before, at or behind the pivot demands, and what a gate cannot have.
func (l *linter) role(i int) {
	s := &l.d.Steps[i]
	gate := s.Approval != nil || s.Timer != 0
	behind := l.pivot >= 0 && i != l.pivot && l.after[i].has(l.pivot)
	before := l.pivot < 0 || l.after[l.pivot].has(i)
	if s.Approval != nil && s.Timer != 0 {
		l.add(i, "/timer", "make two steps of it", "an approval is no timer")
	}
	if gate {
		for _, field := range [...]struct {
			name string
			set  bool
		}{{"action", s.Action != ""}, {"undo", s.Undo != nil}, {"recovery", s.Recovery != ""}, {"provider_window", s.ProviderWindow != 0},
			{"timeout", s.Timeout != 0}, {"settle_delay", s.SettleDelay != 0}, {"retry", s.Retry != nil}, {"input", s.Input != nil && s.Approval == nil}, {"if", s.If != nil && s.Timer != 0}} {
			if field.set {
				l.add(i, "/"+field.name, "remove "+field.name, "an approval or a timer has no effect of its own, so it cannot have %s", field.name)
			}
		}
	}
	if a := s.Approval; a != nil {
		l.duration(i, "/approval/expires", a.Expires)
	}
	l.duration(i, "/timer", s.Timer)
	if s.Undo != nil && s.NoUndo {
		l.add(i, "/no_undo", "remove one of the two", "the step has an undo and says that it has none")
	}
	switch {
	case s.Pivot && i != l.pivot:
		l.add(i, "/pivot", "", "step %s is the pivot already; a saga has at most one", l.d.Steps[l.pivot].Name)
	case s.Pivot && gate:
		l.add(i, "/pivot", "make the effect behind it the pivot", "an approval or a timer cannot be the pivot")
	case s.Pivot && s.If != nil:
		l.add(i, "/if", "", "the pivot has a condition: if it is skipped, nothing that comes after it can be undone")
	}
	switch {
	case (s.Pivot || behind) && s.Undo != nil:
		l.add(i, "/undo", "remove the undo", "nothing is undone from the pivot on, so this undo never runs")
	case s.Pivot:
	case behind && s.Approval != nil:
		l.add(i, "/approval", "ask before the pivot", "the approval comes after the pivot: a rejection could stop nothing any more")
	case behind:
	case !before:
		l.add(i, "", fmt.Sprintf("add it to the needs of %s, or let it need %s", l.d.Steps[l.pivot].Name, l.d.Steps[l.pivot].Name),
			"the step comes neither before nor after the pivot %s", l.d.Steps[l.pivot].Name)
	case s.Undo == nil && !s.NoUndo && !gate:
		l.add(i, "", "give it an undo, or write no_undo: true if there is nothing to undo", "the undo is missing")
	}
}

func (l *linter) condition(i int) {
	c := l.d.Steps[i].If
	if c == nil {
		return
	}
	kinds, comparisons := 0, 0
	for _, given := range [...]bool{c.Value != "", c.Succeeded != "", c.Skipped != ""} {
		if given {
			kinds++
		}
	}
	for _, constant := range [...]struct {
		name   string
		text   json.RawMessage
		number bool
	}{{"equals", c.Equals, false}, {"not_equals", c.NotEquals, false}, {"above", c.Above, true}, {"below", c.Below, true}} {
		if constant.text == nil {
			continue
		}
		comparisons++
		value, err := decode(constant.text)
		_, isNumber := value.(json.Number)
		switch value.(type) {
		case []any, map[string]any:
			l.add(i, "/if/"+constant.name, "", "a constant is a text, a number, true, false or null")
		default:
			if err != nil || constant.number && !isNumber {
				l.add(i, "/if/"+constant.name, "", "%s is not a number", constant.text)
			}
		}
	}
	switch {
	case kinds != 1:
		l.add(i, "/if", "", "a condition has exactly one of value, succeeded and skipped")
	case c.Value != "" && comparisons != 1:
		l.add(i, "/if", "", "a value is compared with exactly one of equals, not_equals, above and below")
	case c.Value == "" && comparisons > 0:
		l.add(i, "/if", "", "equals, not_equals, above and below compare a value")
	case c.Value != "":
		l.pointer(i, "/if/value", c.Value, l.after[i])
	case c.Succeeded != "":
		l.known(i, "/if/succeeded", c.Succeeded, l.after[i])
	case l.known(i, "/if/skipped", c.Skipped, l.after[i]) && l.d.Steps[l.d.Index(c.Skipped)].If == nil:
		l.add(i, "/if/skipped", "", "step %s has no condition, so it is never skipped", c.Skipped)
	}
}

// known checks that a step exists and has ended when step i looks at it.
func (l *linter) known(i int, at, name string, visible set) bool {
	j := l.d.Index(name)
	switch {
	case j < 0:
		l.add(i, at, l.suggestStep(name), "there is no step %q", name)
	case !visible.has(j) && j == i:
		l.add(i, at, "", "the step has not ended yet when this is read")
	case !visible.has(j):
		l.add(i, at, "add "+name+" to its needs", "the step does not come after step %s", name)
	default:
		return true
	}
	return false
}

// pointer checks a reference into the values that step i may see.
func (l *linter) pointer(i int, at, pointer string, visible set) {
	tokens, err := splitPointer(pointer)
	switch {
	case err != nil:
		l.add(i, at, "", "%v", err)
	case len(tokens) == 0, tokens[0] == "input", tokens[0] == "steps" && len(tokens) == 1:
	case tokens[0] != "steps":
		l.add(i, at, "", "%s: a pointer begins with /input or /steps", pointer)
	case !l.known(i, at, tokens[1], visible):
	case len(tokens) > 2 && !slices.Contains([]string{"body", "external_id", "outcome"}, tokens[2]):
		l.add(i, at, "", "%s: a step has body, external_id and outcome, and no %q", pointer, tokens[2])
	case len(tokens) > 3 && tokens[2] != "body":
		l.add(i, at, "", "%s: %s is a text", pointer, tokens[2])
	}
}

// template checks the references of a template.
func (l *linter) template(i int, at string, template json.RawMessage, visible set) {
	if template == nil {
		return
	}
	value, err := decode(template)
	if err != nil {
		l.add(i, at, "", "it is not JSON: %v", err)
		return
	}
	var walk func(at string, value any)
	walk = func(at string, value any) {
		switch t := value.(type) {
		case map[string]any:
			from, found := t[reference]
			switch pointer, isText := from.(string); {
			case found && !isText:
				l.add(i, at+"/"+reference, `write {"$from": "/input/..."}`, "a reference is a JSON pointer in a text")
			case found && len(t) > 1:
				l.add(i, at, "", "an object with %s is replaced as a whole, so it has no other field", reference)
			case found:
				l.pointer(i, at+"/"+reference, pointer, visible)
			default:
				for _, name := range sortedNames(t) {
					if strings.HasPrefix(name, "$") && len(t) == 1 {
						l.add(i, at+"/"+name, "write "+reference, "a reference is %s, and %s would be sent as it is", reference, name)
					}
					walk(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), t[name])
				}
			}
		case []any:
			for n := range t {
				walk(fmt.Sprintf("%s/%d", at, n), t[n])
			}
		}
	}
	walk(at, value)
}

func (l *linter) policy(i int, at string, p RunPolicy) {
	before := len(l.findings)
	if _, err := flight.ParseRecovery(cmp.Or(p.Recovery, "hold")); err != nil {
		l.add(i, at+"/recovery", "", "%q is none of hold, resend and verify", p.Recovery)
	}
	l.duration(i, at+"/provider_window", p.ProviderWindow)
	l.duration(i, at+"/timeout", p.Timeout)
	l.duration(i, at+"/settle_delay", p.SettleDelay)
	if p.ProviderWindow > Duration(flight.DefaultRetention) {
		l.add(i, at+"/provider_window", "", "%v is longer than the retention of receipts, %v", p.ProviderWindow, Duration(flight.DefaultRetention))
	}
	if p.ProviderWindow > 0 && p.Recovery != "resend" {
		l.add(i, at+"/provider_window", "write recovery: resend, or remove the window", "only recovery resend has a provider window")
	}
	r := p.Retry
	if r == nil {
		return
	}
	l.duration(i, at+"/retry/first", r.First)
	l.duration(i, at+"/retry/max", r.Max)
	l.duration(i, at+"/retry/within", r.Within)
	switch {
	case len(l.findings) > before:
	case r.Attempts < 0 || r.Attempts > maxAttempts:
		l.add(i, at+"/retry/attempts", "", "%d is not a number from 1 to %d", r.Attempts, maxAttempts)
	case r.Attempts == 0 && r.Within == 0:
		l.add(i, at+"/retry", "", "neither attempts nor within: the retries would never end")
	case r.Max > 0 && r.Max < r.First:
		l.add(i, at+"/retry/max", "", "%v is less than first, %v", r.Max, r.First)
	case r.Within > Duration(flight.DefaultRetention):
		l.add(i, at+"/retry/within", "", "%v is longer than the retention of receipts, %v", r.Within, Duration(flight.DefaultRetention))
	}
}

func (l *linter) duration(i int, at string, d Duration) {
	switch {
	case d < 0:
		l.add(i, at, "", "%v is negative", d)
	case time.Duration(d) > wire.MaxDuration: // the clients reject a job with a longer duration
		l.add(i, at, "", "%v is too long; at most %v are allowed", d, Duration(wire.MaxDuration))
	case time.Duration(d)%time.Millisecond != 0:
		l.add(i, at, "", "%v is not a whole number of milliseconds", d)
	}
}
