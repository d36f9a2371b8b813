package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

var start = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// goodHistory has a key that was performed once, called twice, and is replayed by each node.
func goodHistory(key string) *History {
	h := &History{Nodes: []string{"a", "b", "c"}, Session: 15 * time.Second, Healed: at(60)}
	h.Effects = []Effect{{Key: key, IdempotencyKey: "k", At: at(1), Body: "paid"}}
	h.Calls = []Call{
		{Key: key, Caller: "1", Began: at(0), Ended: at(2), Result: resultSucceeded, Source: "executed", Body: "paid", Digest: "d"},
		{Key: key, Caller: "2", Began: at(0), Ended: at(3), Result: resultUnavailable},
		{Key: key, Caller: "2", Began: at(3), Ended: at(4), Result: resultSucceeded, Source: "replayed", Body: "paid", Digest: "d"},
	}
	for _, node := range h.Nodes {
		h.Readings = append(h.Readings, Reading{Key: key, Node: node, Source: "replayed", State: "succeeded", Body: "paid", Digest: "d"})
	}
	return h
}

func TestCheck_GoodHistory(t *testing.T) {
	for _, key := range []string{"default/hold/1", "default/resend/1", "default/verify/1"} {
		h := goodHistory(key)
		require.Empty(t, Check(h), key)
	}
	repeated := goodHistory("default/resend/1")
	repeated.Effects = append(repeated.Effects, Effect{Key: "default/resend/1", IdempotencyKey: "k", At: at(30), Repeat: true, Body: "paid"})
	require.Empty(t, Check(repeated), "a repeat that the provider recognises is no effect")
}

// Each bad history breaks one rule.
func TestCheck_BadHistories(t *testing.T) {
	hold, resend := "default/hold/1", "default/resend/1"
	for name, row := range map[string]struct {
		key   string
		rule  string
		spoil func(*History)
	}{
		"a second effect":                {hold, ruleOneEffect, func(h *History) { h.Effects = append(h.Effects, Effect{Key: hold, At: at(5), Body: "paid"}) }},
		"a second effect after a resend": {resend, ruleOneEffect, func(h *History) { h.Effects = append(h.Effects, Effect{Key: resend, IdempotencyKey: "k", At: at(5)}) }},
		"another idempotency key": {resend, ruleSameKey, func(h *History) {
			h.Effects = append(h.Effects, Effect{Key: resend, IdempotencyKey: "other", At: at(5), Repeat: true})
		}},
		"a resend after the window": {resend, ruleSameKey, func(h *History) {
			h.Effects = append(h.Effects, Effect{Key: resend, IdempotencyKey: "k", At: at(2 + providerWindow.Seconds()), Repeat: true})
		}},
		"two performers":             {hold, ruleOneEffect, func(h *History) { h.Calls[2].Source = "executed" }},
		"two receipts":               {hold, ruleKept, func(h *History) { h.Calls[2].Body, h.Calls[2].Digest = "paid twice", "e" }},
		"a receipt from nowhere":     {hold, ruleTrue, func(h *History) { h.Effects[0].Body = "other" }},
		"a receipt without effect":   {hold, ruleTrue, func(h *History) { h.Effects = nil }},
		"an effect without callers":  {hold, ruleTrue, func(h *History) { h.Effects = append(h.Effects, Effect{Key: "default/hold/2", At: at(5)}) }},
		"a conflict that is none":    {hold, ruleTrue, func(h *History) { h.Calls[1].Result = resultOther }},
		"a doubt":                    {hold, ruleKeeps, func(h *History) { h.Calls[1].Result = resultInDoubt }},
		"a receipt changed later":    {hold, ruleKept, func(h *History) { h.Readings[1].Body = "other" }},
		"a receipt lost at a node":   {hold, ruleKept, func(h *History) { h.Readings[2].Err = "not found" }},
		"a node that was not asked":  {hold, ruleKept, func(h *History) { h.Readings = h.Readings[:2] }},
		"an effect performed again":  {hold, ruleKept, func(h *History) { h.Readings[0].Source = "executed" }},
		"a late report":              {hold, ruleReported, func(h *History) { h.Readings[0].Evidence = 1 }},
		"an attempt that was fenced": {resend, ruleKeeps, func(h *History) { h.Calls[1].Result = resultFenced }},
		"a lost attempt":             {resend, ruleKeeps, func(h *History) { h.Readings[0].Lost = 1 }},
		"an overlap":                 {hold, ruleOneEffect, func(h *History) { h.Readings[0].Overlap = true }},
		"a key that never ends":      {hold, ruleNotBlocked, func(h *History) { h.Calls[2].Result = resultUnavailable }},
		"a key that ends too late":   {hold, ruleNotBlocked, func(h *History) { h.Calls[2].Ended = at(92) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := goodHistory(row.key)
			row.spoil(h)
			found := Check(h)
			require.NotEmpty(t, found)
			require.Equal(t, row.rule, found[0].Rule, "%v", found)
		})
	}
}

// Where sessions may have ended, a doubt is true, and an attempt may be lost; its report must arrive all the same.
func TestCheck_SessionsMayEnd(t *testing.T) {
	h := goodHistory("default/hold/1")
	h.MayEnd = true
	h.Calls = []Call{{Key: "default/hold/1", Caller: "1", Began: at(0), Ended: at(2), Result: resultInDoubt}}
	h.Readings[0].Lost, h.Readings[0].Evidence = 1, 1
	require.Empty(t, Check(h))
	h.Readings[1].State = "in_doubt"
	require.Equal(t, ruleKept, Check(h)[0].Rule)
}

// Only keys that were first called after the moment count.
func TestHistory_FirstFlightAfter(t *testing.T) {
	h := goodHistory("default/hold/pace-1")
	after, found := h.firstFlightAfter(at(-1))
	require.True(t, found)
	require.Equal(t, 2*time.Second, after)
	_, found = h.firstFlightAfter(at(0.5))
	require.False(t, found, "the key was first called before")
}

// Only an effect that has happened counts as performed by the caller whose report is still on its way.
func TestResultOf_Unrecorded(t *testing.T) {
	for outcome, want := range map[flight.Outcome]string{flight.OutcomeSucceeded: resultUnrecorded, flight.OutcomeRefused: resultUnrecorded,
		flight.OutcomeUnknown: resultUnsettled, flight.OutcomeNotDone: resultUnavailable} {
		require.Equal(t, want, resultOf(&effect.Unrecorded{Result: effect.Result{Outcome: outcome}}), outcome)
	}
}
