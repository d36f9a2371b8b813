package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// sagaDefinitions returns six sagas of the same five steps: half of them with a pivot, the recoveries of their steps in turn. The name of a step
// ends with its recovery.
func sagaDefinitions() (all []*saga.Definition) {
	retry := &saga.Retry{Attempts: 20, First: saga.Duration(200 * time.Millisecond), Max: saga.Duration(2 * time.Second)}
	policies := map[string]saga.RunPolicy{recoveryHold: {Retry: retry}, recoveryResend: {Recovery: recoveryResend, ProviderWindow: saga.Duration(providerWindow), Retry: retry},
		recoveryVerify: {Recovery: recoveryVerify, SettleDelay: saga.Duration(settleDelay), Retry: retry}}
	for i := range 6 {
		d, pivot := &saga.Definition{Saga: fmt.Sprint("trip-", i), Version: 1}, i < 3
		for n, name := range [...]string{"hotel", "seat", "car", "pay", "voucher"} {
			recovery, step := recoveries[(i+n)%3], func(n int) string { return d.Steps[n].Name }
			s := saga.Step{Name: name + "-" + recovery, Action: recovery, RunPolicy: policies[recovery], Pivot: pivot && name == "pay",
				Input: json.RawMessage(fmt.Sprintf(`{"lasts_ms": {"$from": "/input/lasts_ms/%d"}}`, n))}
			if !pivot || n < 3 {
				s.Undo = &saga.Undo{Action: recoveryResend, RunPolicy: policies[recoveryResend],
					Input: json.RawMessage(fmt.Sprintf(`{"lasts_ms": 50, "undoes": {"$from": "/steps/%s/body"}}`, s.Name))}
			}
			switch name {
			case "car":
				s.Needs = []string{step(0), step(1)}
				s.Input = json.RawMessage(fmt.Sprintf(`{"lasts_ms": 50, "room": {"$from": "/steps/%s/body/effect"}}`, step(0)))
			case "pay", "voucher":
				s.Needs = []string{step(n - 1)}
			}
			d.Steps = append(d.Steps, s)
		}
		all = append(all, d)
	}
	all[3].Steps[0].Undo.SafeIfAbsent, all[3].Steps[0].SettleDelay = true, saga.Duration(settleDelay)
	all[4].Deadline = saga.Duration(10 * time.Second)
	return all
}

// SagaEnd is what became of a saga, as the one who had started it was told.
type SagaEnd struct {
	Key      string
	Began    time.Time
	State    string // as package wire has it
	Why      string // it is undone, or in doubt
	MarkedAt time.Time
	Over     time.Time
	Doubts   int                // how often a person had to decide
	Cancels  []string           // answers to two persons who cancelled it at once: accepted, or a code
	Steps    map[string]StepEnd // steps and undos that were started, by their names
	Err      string             // the saga could not be read
}

// StepEnd is what became of a step, or of an undo.
type StepEnd struct {
	State             string
	Created, Finished time.Time
	Opened            time.Time // when its only attempt was opened; zero if there were more
	Overlap           bool
}

// sagaEndLimit is the longest time from the last fault to the end of a saga: sessions end, steps that wait run again, and a person decides.
const sagaEndLimit = time.Minute

// CheckSagas judges sagas by the provider's books. Workers and nodes may have died and stood still. A person has decided each doubt by the books.
// flagged are the steps whose flights say that they may have happened twice, or after their undo: their worker has stood still for too long.
func CheckSagas(defs []*saga.Definition, effects []Effect, ends []SagaEnd, healed time.Time) (found []Violation, flagged []string) {
	books := byKey(effects)
	for i := range ends {
		end := &ends[i]
		d := defs[slices.IndexFunc(defs, func(d *saga.Definition) bool { return strings.HasPrefix(end.Key, "default/"+d.Saga+"/") })]
		c := &sagaCheck{SagaEnd: end, d: d, say: func(rule, format string, args ...any) {
			found = append(found, Violation{rule, end.Key, fmt.Sprintf(format, args...)})
		}}
		for n := range d.Steps {
			name := d.Steps[n].Name
			c.did, c.undid = append(c.did, firstEffect(books[end.Key+"#"+name])), append(c.undid, firstEffect(books[end.Key+"#"+name+".undo"]))
		}
		for _, key := range slices.Sorted(maps.Keys(end.Steps)) {
			a := &account{key: end.Key + "#" + key, effects: books[end.Key+"#"+key]}
			if end.Steps[key].Overlap {
				flagged = append(flagged, a.key)
				continue
			}
			a.checkEffects(func(rule, format string, args ...any) { c.say(rule, key+": "+format, args...) })
		}
		c.checkForward()
		c.checkUndos()
		c.checkEnd(healed)
	}
	return found, flagged
}

// firstEffect returns the first effect that is no repeat, or nil.
func firstEffect(effects []Effect) (first *Effect) {
	for _, e := range effects {
		if !e.Repeat && (first == nil || e.At.Before(first.At)) {
			first = &e
		}
	}
	return first
}

func (e *Effect) ended() time.Time { return e.At.Add(e.Lasts) }

// sagaCheck compares the end of one saga with the books. did and undid are the effects of its steps and undos; nil: there was none.
type sagaCheck struct {
	*SagaEnd
	d          *saga.Definition
	did, undid []*Effect
	say        sayFunc
}

func (c *sagaCheck) step(i int) StepEnd { return c.Steps[c.d.Steps[i].Name] }

// isSafe reports whether a step may be undone although it is not known whether it has happened.
func (c *sagaCheck) isSafe(i int) bool {
	return c.d.Steps[i].Undo != nil && c.d.Steps[i].Undo.SafeIfAbsent && c.step(i).State != "succeeded"
}

// checkForward compares what each step did with what its flight says, with the steps that it needs, and with the mark.
func (c *sagaCheck) checkForward() {
	pivot := slices.IndexFunc(c.d.Steps, func(s saga.Step) bool { return s.Pivot })
	for i, e := range c.did {
		s, end := &c.d.Steps[i], c.step(i)
		switch {
		case end.Overlap || c.isSafe(i):
		case e == nil && end.State == "succeeded":
			c.say(ruleTrue, "step %s succeeded, and has not happened", s.Name)
		case e != nil && !end.Finished.IsZero() && end.State != "succeeded":
			c.say(ruleTrue, "step %s has happened, and is %s", s.Name, end.State)
		}
		if e == nil || end.Overlap {
			continue
		}
		for _, name := range s.Needs {
			if needed := c.did[c.d.Index(name)]; !c.Steps[name].Overlap && (needed == nil || needed.ended().After(e.At)) {
				c.say(ruleNeeds, "step %s began at %s, when step %s was not over", s.Name, clockText(e.At), name)
			}
		}
		if behind := pivot >= 0 && i > pivot; !behind && !c.MarkedAt.IsZero() && (end.Created.After(c.MarkedAt) || end.Opened.After(c.MarkedAt)) {
			c.say(ruleMark, "step %s was submitted at %s and opened at %s, and the saga was cancelled at %s", s.Name, clockText(end.Created), clockText(end.Opened), clockText(c.MarkedAt))
		}
	}
	if pivot >= 0 && c.did[pivot] != nil {
		for i, u := range c.undid {
			if u != nil {
				c.say(rulePivot, "step %s was undone, and the pivot has happened", c.d.Steps[i].Name)
			}
		}
	}
}

// checkUndos judges whether undos came when every step was resolved, one at a time, in the right order.
func (c *sagaCheck) checkUndos() {
	var undos []int // in the order of their effects
	for i, u := range c.undid {
		if u != nil {
			undos = append(undos, i)
		}
	}
	slices.SortFunc(undos, func(i, j int) int { return c.undid[i].At.Compare(c.undid[j].At) })
	for n, i := range undos {
		u, name := c.undid[i], c.d.Steps[i].Name
		switch e := c.did[i]; {
		case e == nil && !c.isSafe(i) && !c.step(i).Overlap:
			c.say(ruleAllOrNone, "step %s was undone, and has not happened", name)
		case e != nil && !e.At.Before(u.At) && !c.step(i).Overlap:
			c.say(ruleAfterUndo, "step %s happened at %s, and its undo at %s", name, clockText(e.At), clockText(u.At))
		}
		for j, e := range c.did {
			submitted, end := c.Steps[name+".undo"].Created, c.step(j)
			if j == i || end.Overlap || c.isSafe(j) {
				continue
			}
			if e != nil && e.ended().After(u.At) || end.Finished.After(submitted) || !end.Created.IsZero() && end.Finished.IsZero() {
				c.say(ruleSettled, "step %s was undone at %s, when step %s was not over", name, clockText(u.At), c.d.Steps[j].Name)
			}
		}
		if n == 0 {
			continue
		}
		before := undos[n-1]
		if c.undid[before].ended().After(u.At) {
			c.say(ruleReverse, "the undos of %s and %s ran at once", c.d.Steps[before].Name, name)
		}
		if x, y := c.step(before), c.step(i); !x.Overlap && !y.Overlap && !x.Finished.IsZero() && x.Finished.Before(y.Finished) {
			c.say(ruleReverse, "step %s was undone before step %s, which ended later", c.d.Steps[before].Name, name)
		}
	}
}

// checkEnd judges the end of the saga by all of its effects, and by when it came.
func (c *sagaCheck) checkEnd(healed time.Time) {
	undo := false
	switch c.State {
	case wire.SagaDone:
	case wire.SagaUndone, wire.SagaCancelled:
		undo = true
	case wire.SagaInDoubt:
		if c.Why == "" {
			c.say(ruleSaysWhy, "it is in doubt, and says no reason")
		}
		return
	default:
		c.say(ruleNotBlocked, "it is %q, and was not over in time: %s", c.State, c.Err)
		return
	}
	for i, e := range c.did {
		name := c.d.Steps[i].Name
		switch flagged := c.step(i).Overlap; {
		case flagged:
		case !undo && e == nil:
			c.say(ruleAllOrNone, "it is done, and step %s has not happened", name)
		case !undo && c.undid[i] != nil:
			c.say(ruleAllOrNone, "it is done, and step %s was undone", name)
		case undo && e != nil && c.undid[i] == nil:
			c.say(ruleAllOrNone, "it is %s, and step %s has happened", c.State, name)
		}
		if hasPivot := slices.ContainsFunc(c.d.Steps, func(s saga.Step) bool { return s.Pivot }); !undo && !hasPivot && !c.MarkedAt.IsZero() && c.step(i).Finished.After(c.MarkedAt) {
			c.say(ruleMark, "it was cancelled at %s, and step %s was over only at %s", clockText(c.MarkedAt), name, clockText(c.step(i).Finished))
		}
	}
	for _, answer := range c.Cancels {
		if undo && answer == string(wire.PastPivot) || !undo && answer == "accepted" && c.MarkedAt.IsZero() {
			c.say(ruleOneOutcome, "it is %s, and the answers to cancels were %q", c.State, c.Cancels)
		}
	}
	from := c.Began
	if healed.After(from) {
		from = healed
	}
	if took := c.Over.Sub(from); took > sagaEndLimit {
		c.say(ruleNotBlocked, "it was over %v after its start and the last fault", took)
	}
}
