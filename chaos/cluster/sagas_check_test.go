package cluster

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// sagaBooks are the books and the end of one saga. Tests spoil them.
type sagaBooks struct {
	d       *saga.Definition
	effects map[string]*Effect // by the name of the step or undo
	SagaEnd
}

// add lets a step, or an undo, happen in the second after a moment.
func (b *sagaBooks) add(name string, from float64) {
	b.effects[name] = &Effect{Key: b.Key + "#" + name, IdempotencyKey: name, At: at(from + 0.1), Lasts: 800 * time.Millisecond}
	b.Steps[name] = StepEnd{State: "succeeded", Created: at(from), Finished: at(from + 1)}
}

func (b *sagaBooks) step(name string, change func(*StepEnd)) {
	end := b.Steps[name]
	change(&end)
	b.Steps[name] = end
}

func (b *sagaBooks) check() ([]Violation, []string) {
	var effects []Effect
	for _, name := range slices.Sorted(maps.Keys(b.effects)) {
		effects = append(effects, *b.effects[name])
	}
	return CheckSagas(sagaDefinitions(), effects, []SagaEnd{b.SagaEnd}, at(0))
}

// doneSaga is a saga whose five steps have happened: the first two at once, the others one after the other.
func doneSaga(definition int) *sagaBooks {
	b := &sagaBooks{d: sagaDefinitions()[definition], effects: make(map[string]*Effect)}
	b.SagaEnd = SagaEnd{Key: "default/" + b.d.Saga + "/s", Began: at(0), Over: at(20), State: wire.SagaDone, Steps: make(map[string]StepEnd)}
	for i, from := range []float64{0, 0.2, 2, 3, 4} {
		b.add(b.d.Steps[i].Name, from)
	}
	return b
}

// undoneSaga is a saga whose fourth step was refused: the three before it were undone.
func undoneSaga(definition int) *sagaBooks {
	b := doneSaga(definition)
	pay, voucher := b.d.Steps[3].Name, b.d.Steps[4].Name
	delete(b.effects, pay)
	delete(b.effects, voucher)
	b.step(pay, func(s *StepEnd) { s.State = "failed" })
	b.Steps[voucher] = StepEnd{State: "cancelled", Created: at(4.5), Finished: at(4.5)} // sealed
	b.State, b.MarkedAt = wire.SagaUndone, at(4.2)
	for n, i := range []int{2, 1, 0} {
		b.add(b.d.Steps[i].Name+".undo", float64(5+n))
	}
	return b
}

func TestCheckSagas_Good(t *testing.T) {
	good := func(name string, b *sagaBooks) {
		found, flagged := b.check()
		require.Empty(t, found, name)
		require.Empty(t, flagged, name)
	}
	for definition := range sagaDefinitions() {
		require.Empty(t, saga.Lint(sagaDefinitions()[definition]))
		good("done", doneSaga(definition))
		good("undone", undoneSaga(definition))
	}
	b := doneSaga(0)
	b.Cancels, b.MarkedAt = []string{"accepted", "past_pivot"}, at(3.5)
	good("a cancel that has lost to the pivot", b)
	b = undoneSaga(0)
	b.State, b.Why = wire.SagaInDoubt, "an undo was refused"
	delete(b.effects, "hotel-hold.undo")
	good("a doubt", b)

	b = undoneSaga(3)
	for _, name := range []string{"hotel-hold", "car-verify", "car-verify.undo"} {
		delete(b.effects, name)
		b.step(name, func(s *StepEnd) { s.State = "failed" })
	}
	good("an undo of a step that is safe to undo", b)
	b = undoneSaga(1)
	late := b.d.Steps[0].Name
	b.effects[late].At = at(15)
	b.step(late, func(s *StepEnd) { s.Overlap = true })
	found, flagged := b.check()
	require.Empty(t, found)
	require.Equal(t, []string{b.Key + "#" + late}, flagged, "an overlap is reported")
}

// Each bad history breaks one rule.
func TestCheckSagas_Bad(t *testing.T) {
	for name, row := range map[string]struct {
		b     *sagaBooks
		rule  string
		spoil func(b *sagaBooks)
	}{
		"done, and a step did not happen": {doneSaga(0), ruleTrue, func(b *sagaBooks) { delete(b.effects, "voucher-resend") }},
		"done without a step":             {doneSaga(0), ruleAllOrNone, func(b *sagaBooks) { delete(b.effects, "voucher-resend"); delete(b.Steps, "voucher-resend") }},
		"done, and a step was undone":     {doneSaga(4), ruleAllOrNone, func(b *sagaBooks) { b.add("voucher-verify.undo", 6) }},
		"undone, and an effect is left":   {undoneSaga(0), ruleAllOrNone, func(b *sagaBooks) { delete(b.effects, "hotel-hold.undo") }},
		"an undo of nothing": {undoneSaga(0), ruleAllOrNone, func(b *sagaBooks) {
			delete(b.effects, "car-verify")
			b.step("car-verify", func(s *StepEnd) { s.State = "failed" })
		}},
		"an effect of a step that failed": {undoneSaga(0), ruleTrue, func(b *sagaBooks) { b.step("seat-resend", func(s *StepEnd) { s.State = "cancelled" }) }},
		"a sealed step that was opened":   {undoneSaga(3), ruleTrue, func(b *sagaBooks) { b.effects["voucher-resend"] = &Effect{Key: b.Key + "#voucher-resend", At: at(4.6)} }},
		"a step that happens twice": {doneSaga(0), ruleOneEffect, func(b *sagaBooks) {
			again := *b.effects["hotel-hold"]
			b.effects["again"] = &again
		}},
		"an effect after its undo": {undoneSaga(0), ruleAfterUndo, func(b *sagaBooks) { b.effects["hotel-hold"].At = at(8) }},
		"a safe step after its undo, not flagged": {undoneSaga(3), ruleAfterUndo, func(b *sagaBooks) {
			b.effects["hotel-hold"].At = at(8)
			b.step("hotel-hold", func(s *StepEnd) { s.State = "failed" })
		}},
		"an undo while a step runs":       {undoneSaga(0), ruleSettled, func(b *sagaBooks) { b.effects["seat-resend"].Lasts = 5 * time.Second }},
		"an undo before a step has ended": {undoneSaga(0), ruleSettled, func(b *sagaBooks) { b.step("pay-hold", func(s *StepEnd) { s.Finished = at(5.1) }) }},
		"an undo while a step is in doubt": {undoneSaga(0), ruleSettled, func(b *sagaBooks) {
			b.step("pay-hold", func(s *StepEnd) { s.State, s.Finished = "in_doubt", time.Time{} })
		}},
		"undone in the order of starts":      {undoneSaga(0), ruleReverse, func(b *sagaBooks) { b.step("hotel-hold", func(s *StepEnd) { s.Finished = at(1.8) }) }},
		"two undos at once":                  {undoneSaga(0), ruleReverse, func(b *sagaBooks) { b.effects["car-verify.undo"].Lasts = 2 * time.Second }},
		"a new step after the mark":          {undoneSaga(0), ruleMark, func(b *sagaBooks) { b.MarkedAt = at(1.5) }},
		"a step opened after the mark":       {undoneSaga(0), ruleMark, func(b *sagaBooks) { b.step("car-verify", func(s *StepEnd) { s.Opened = at(4.3) }) }},
		"done, although it was cancelled":    {doneSaga(4), ruleMark, func(b *sagaBooks) { b.MarkedAt = at(4.5) }},
		"undone, although the pivot has won": {undoneSaga(0), ruleOneOutcome, func(b *sagaBooks) { b.Cancels = []string{"accepted", "past_pivot"} }},
		"done, and a cancel was lost":        {doneSaga(4), ruleOneOutcome, func(b *sagaBooks) { b.Cancels = []string{"accepted", "accepted"} }},
		"an undo past the pivot":             {doneSaga(0), rulePivot, func(b *sagaBooks) { b.add("car-verify.undo", 6) }},
		"a step before what it needs":        {doneSaga(0), ruleNeeds, func(b *sagaBooks) { b.effects["seat-resend"].Lasts = 2 * time.Second }},
		"a doubt without a reason":           {undoneSaga(0), ruleSaysWhy, func(b *sagaBooks) { b.State = wire.SagaInDoubt }},
		"a saga that is not over":            {undoneSaga(0), ruleNotBlocked, func(b *sagaBooks) { b.State = wire.SagaUndoing }},
		"a saga that was over too late":      {doneSaga(0), ruleNotBlocked, func(b *sagaBooks) { b.Over = at(61) }},
	} {
		t.Run(name, func(t *testing.T) {
			row.spoil(row.b)
			found, _ := row.b.check()
			require.True(t, slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == row.rule }), "%v", found)
		})
	}
}
