package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Violation is a promise of docs/guarantees.md that was broken.
type Violation struct {
	Rule string
	Key  string
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Rule, v.Key, v.Text) }

// The rules that checkers judge by: judge.promises says what each promises.
const (
	ruleOneEffect  = "one effect"
	ruleSameKey    = "same key"
	ruleKept       = "receipt kept"
	ruleTrue       = "true answer"
	ruleKeeps      = "attempt kept"
	ruleNotBlocked = "not blocked"
	ruleReported   = "reported"
	ruleLane       = "lane"
	ruleAllOrNone  = "all or none"
	ruleReverse    = "reverse order"
	ruleSettled    = "settled first"
	ruleAfterUndo  = "after its undo"
	ruleMark       = "mark"
	rulePivot      = "pivot"
	ruleNeeds      = "needs"
	ruleSaysWhy    = "says why"
	ruleOneOutcome = "one decision"
	ruleRecovers   = "recovers"
	ruleApproval   = "approval"
	ruleExec       = "exec"
	ruleLinear     = "order of answers"
	ruleLog        = "ledger's log"
	ruleLeft       = "left over"
	ruleLost       = "lost update" // with a lock: see lockExperiment
	ruleOverlap    = "overlap"
)

const (
	// providerWindow is declared with the keys of recovery resend: how long the provider remembers their idempotency keys.
	providerWindow = 40 * time.Second
	// settleDelay is declared with the keys of recovery verify.
	settleDelay = time.Second
	// endSlack is how much longer than a session a key may take to end after the last fault has healed: an election, the
	// pauses of clients between two tries, and the work of all keys that waited.
	endSlack = 15 * time.Second
)

// account is everything that was seen of one key.
type account struct {
	key      string
	effects  []Effect
	calls    []Call
	readings []Reading
}

// Check judges a history in which no caller died, and whose provider honours idempotency keys under recovery resend.
func Check(h *History) []Violation {
	accounts := make(map[string]*account)
	of := func(key string) *account {
		if accounts[key] == nil {
			accounts[key] = &account{key: key}
		}
		return accounts[key]
	}
	for _, e := range h.Effects {
		of(e.Key).effects = append(of(e.Key).effects, e)
	}
	for i := range h.Calls {
		a := of(h.Calls[i].Key)
		a.calls = append(a.calls, h.Calls[i])
	}
	for i := range h.Readings {
		a := of(h.Readings[i].Key)
		a.readings = append(a.readings, h.Readings[i])
	}
	var found []Violation
	for _, key := range slices.Sorted(maps.Keys(accounts)) {
		a := accounts[key]
		say := func(rule, format string, args ...any) {
			found = append(found, Violation{rule, key, fmt.Sprintf(format, args...)})
		}
		a.checkEffects(say)
		receipt := a.checkAnswers(h.MayEnd, say)
		a.checkReadings(h, receipt, say)
		a.checkEnd(h, say)
	}
	return found
}

type sayFunc func(rule, format string, args ...any)

// checkEffects judges the provider's book of one key.
func (a *account) checkEffects(say sayFunc) {
	slices.SortFunc(a.effects, func(x, y Effect) int { return x.At.Compare(y.At) })
	acted := 0
	for i, e := range a.effects {
		if !e.Repeat {
			acted++
		}
		if recoveryOf(a.key) != recoveryResend {
			continue
		}
		if first := a.effects[0]; e.IdempotencyKey != first.IdempotencyKey {
			say(ruleSameKey, "request %d has idempotency key %s, and the first one %s", i+1, e.IdempotencyKey, first.IdempotencyKey)
		} else if apart := e.At.Sub(first.At); apart > providerWindow {
			say(ruleSameKey, "request %d came %v after the first one", i+1, apart)
		}
	}
	if acted > 1 {
		var times []string
		for _, e := range a.effects {
			times = append(times, clockText(e.At))
		}
		say(ruleOneEffect, "the provider acted %d times, at %s", acted, strings.Join(times, ", "))
	}
}

// checkAnswers checks the answers to the callers of one key. It returns the success that they agree on, or nil if no
// caller got one.
func (a *account) checkAnswers(mayEnd bool, say sayFunc) (receipt *Call) {
	slices.SortFunc(a.calls, func(x, y Call) int { return x.Ended.Compare(y.Ended) })
	executed := 0
	for i := range a.calls {
		c := &a.calls[i]
		switch c.Result {
		case resultSucceeded, resultUnrecorded:
			if c.Source == "executed" {
				executed++
			}
			if c.Result == resultUnrecorded {
				continue
			}
			switch {
			case receipt == nil:
				receipt = c
			case receipt.Body != c.Body || receipt.Digest != c.Digest:
				say(ruleKept, "caller %s got %q, and caller %s got %q", receipt.Caller, receipt.Body, c.Caller, c.Body)
			}
		case resultInDoubt, resultFenced:
			if mayEnd {
				continue
			}
			say(ruleKeeps, "caller %s was told at %s: %s", c.Caller, clockText(c.Ended), c.Err)
		case resultUnavailable, resultUnsettled, resultSuspended:
			// True at any time: calling again is safe.
		default:
			say(ruleTrue, "caller %s was told at %s: %s", c.Caller, clockText(c.Ended), c.Err)
		}
	}
	if executed > 1 && recoveryOf(a.key) != recoveryResend {
		say(ruleOneEffect, "%d callers were told that they performed the effect", executed)
	}
	if receipt != nil && !slices.ContainsFunc(a.effects, func(e Effect) bool { return e.Body == receipt.Body }) {
		say(ruleTrue, "the receipt %q is no answer of the provider", receipt.Body)
	}
	return receipt
}

// checkReadings compares what each node says at the end with the receipt that callers were told. If none was told, the report of
// the effect must have become the receipt all the same.
func (a *account) checkReadings(h *History, receipt *Call, say sayFunc) {
	if len(a.calls) == 0 || receipt == nil && len(a.effects) == 0 {
		return
	}
	for _, node := range h.Nodes {
		i := slices.IndexFunc(a.readings, func(r Reading) bool { return r.Node == node })
		if i < 0 {
			say(ruleKept, "node %s was not asked", node)
			continue
		}
		r := &a.readings[i]
		if receipt == nil {
			receipt = &Call{Body: a.effects[0].Body, Digest: r.Digest}
		}
		switch {
		case r.Err != "":
			say(ruleKept, "node %s: %s", node, r.Err)
		case r.Source != "replayed" || r.State != "succeeded":
			say(ruleKept, "node %s: it is %s, and the answer was %s", node, r.State, r.Source)
		case r.Body != receipt.Body || r.Digest != receipt.Digest:
			say(ruleKept, "node %s replays %q, and the receipt was %q", node, r.Body, receipt.Body)
		case r.Overlap:
			say(ruleOneEffect, "node %s has evidence of a second effect", node)
		case r.Lost > 0 && !h.MayEnd:
			say(ruleKeeps, "node %s has declared %d attempts lost", node, r.Lost)
		case r.Evidence > 0 && node == h.Nodes[0] && r.Lost == 0 && recoveryOf(a.key) != actionCallback: // a callback comes before its attempt's own report
			say(ruleReported, "%d reports came too late, and no attempt was lost", r.Evidence)
		}
	}
}

// checkEnd judges whether each caller of the key was answered for good, and in time.
func (a *account) checkEnd(h *History, say sayFunc) {
	if len(a.calls) == 0 {
		say(ruleTrue, "an effect happened, and no caller was told of it")
		return
	}
	began, last, lasts := make(map[string]time.Time), make(map[string]*Call), time.Duration(0)
	for i := range a.calls { // in the order of their ends: checkAnswers has sorted them
		c := &a.calls[i]
		if first, known := began[c.Caller]; !known || c.Began.Before(first) {
			began[c.Caller] = c.Began
		}
		last[c.Caller] = c
		lasts = max(lasts, c.Lasts)
	}
	if slices.ContainsFunc(a.effects, func(e Effect) bool { return e.Trouble == string(troubleErrors) }) {
		lasts += providerWindow // no attempt is told that the effect has happened
	}
	for _, caller := range slices.Sorted(maps.Keys(last)) {
		c, from := last[caller], began[caller]
		if h.Healed.After(from) {
			from = h.Healed
		}
		switch took := c.Ended.Sub(from); {
		case c.Result != resultSucceeded && c.Result != resultInDoubt:
			say(ruleNotBlocked, "caller %s had no better answer than %s at %s: %s", caller, c.Result, clockText(c.Ended), c.Err)
		case took > lasts+h.Session+settleDelay+endSlack:
			say(ruleNotBlocked, "caller %s was answered %v after its first call and the last fault", caller, took)
		}
	}
}

func clockText(t time.Time) string { return t.Format("15:04:05.000") }
