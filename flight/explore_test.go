package flight_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
)

// scenario is one policy with the commands that make sense under it.
type scenario struct {
	name   string
	policy flight.Policy
	keys   []flight.Key
	prefix []flight.Command
	extra  func(w *world, s *scenario) []flight.Command
	solo   bool // the usual commands of a single key take part
}

var retry2 = flight.RetryPolicy{Attempts: 2, MinBackoff: time.Second, MaxBackoff: 2 * time.Second}

func scenarios() []scenario {
	solo := func(name string, p flight.Policy) scenario {
		p.Retention, p.SettleDelay, p.LookTries = retains, settle, 2
		return scenario{name: name, policy: p, keys: []flight.Key{soloKey}, solo: true}
	}
	callback := solo("callback", flight.Policy{})
	callback.extra = callbackCommands
	approval := solo("approval", flight.Policy{Approval: true})
	approval.extra = approvalCommands
	epochs := solo("new lease epoch", flight.Policy{})
	epochs.extra = epochCommands
	saga := scenario{name: "saga", policy: flight.Policy{Saga: true, Retention: retains}, keys: []flight.Key{sagaKey, stepKey, undoKey}, extra: sagaCommands}
	driven := saga
	driven.name = "saga, driven"
	driven.prefix = []flight.Command{openOf(sagaKey, saga.policy, claims[0], nonce1, fp1)}
	return []scenario{
		solo("hold", flight.Policy{}),
		solo("hold with retries", flight.Policy{Retry: retry2}),
		solo("resend", flight.Policy{Recovery: flight.Resend}),
		solo("resend with retries", flight.Policy{Recovery: flight.Resend, Retry: retry2}),
		solo("resend in a window", flight.Policy{Recovery: flight.Resend, ProviderWindow: window}),
		solo("resend in a window, with a look-up", flight.Policy{Recovery: flight.Resend, ProviderWindow: window, Lookup: true, Retry: retry2}),
		solo("verify", flight.Policy{Recovery: flight.Verify}),
		solo("verify with retries", flight.Policy{Recovery: flight.Verify, Retry: retry2}),
		solo("retries within a time", flight.Policy{Recovery: flight.Resend, Retry: flight.RetryPolicy{Attempts: 3, Within: window}}),
		solo("scheduled", flight.Policy{RunAfter: settle}),
		callback, approval, epochs, saga, driven,
	}
}

// TestExhaustive walks through every sequence of up to six commands (four with -short), once for every state of the world: in each
// state that fewer commands reach, every command is applied, judged, and repeated.
func TestExhaustive(t *testing.T) {
	began, states, steps, depth := time.Now(), 0, 0, fullDepth
	if testing.Short() {
		depth = shortDepth
	}
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			n, m := explore(t, &s, depth)
			t.Logf("%d distinct states, %d commands tried in them", n, m)
			states, steps = states+n, steps+m
		})
	}
	t.Logf("sequences of up to %d commands: %d distinct states, %d commands tried in them, in %v",
		depth, states, steps, time.Since(began).Round(time.Millisecond))
}

// visit is a state in the order of discovery, with the way to it.
type visit struct {
	w    *world
	from int
	by   flight.Command
}

func explore(t *testing.T, s *scenario, depth int) (states, steps int) {
	t.Helper()
	first := newWorld(s.keys...)
	for _, c := range s.prefix {
		next, _, err := first.step(c)
		if err != nil {
			t.Fatal(err)
		}
		first = next
	}
	visits := []visit{{w: first, from: -1}}
	d, buf := first.digest(nil)
	seen := map[uint64]bool{d: true}
	level := 0
	for left := depth; left > 0; left-- {
		end := len(visits)
		for ; level < end; level++ {
			w := visits[level].w
			for _, c := range s.commands(w) {
				next, _, err := w.step(c)
				steps++
				if err != nil {
					t.Fatalf("%v\nthe way there:\n%s  %s", err, wayTo(visits, level), describe(c))
				}
				if left == 1 || next.isStill(w) {
					continue
				}
				if d, buf = next.digest(buf); !seen[d] {
					seen[d] = true
					visits = append(visits, visit{next, level, c})
				}
			}
			visits[level].w = nil
		}
	}
	return len(seen), steps
}

func wayTo(visits []visit, at int) string {
	var way []string
	for ; visits[at].by != nil; at = visits[at].from {
		way = append(way, "  "+describe(visits[at].by)+"\n")
	}
	var b strings.Builder
	for i := len(way) - 1; i >= 0; i-- {
		b.WriteString(way[i])
	}
	return b.String()
}

func describe(c flight.Command) string {
	switch c := c.(type) {
	case *tick:
		return fmt.Sprintf("time + %v", c.by)
	case *flight.Open:
		return fmt.Sprintf("Open %v claim %d%s nonce %d fingerprint %x", c.Key, c.Claim.Revision, c.Claim.Session, c.Nonce[0], c.Submission.Fingerprint[0])
	case *flight.Report:
		return fmt.Sprintf("Report %v %v %v %q", c.Key, c.Token, c.Outcome, c.ExternalID)
	}
	return fmt.Sprintf("%T %+v", c, c)
}

func (s *scenario) commands(w *world) []flight.Command {
	var cs []flight.Command
	if s.solo {
		cs = soloCommands(w, s)
	}
	if s.extra != nil {
		cs = append(cs, s.extra(w, s)...)
	}
	for _, by := range [...]time.Duration{6 * time.Second, 21 * time.Second, 31 * time.Second} {
		if w.header.Now < start.Add(time.Minute) {
			cs = append(cs, &tick{by: by})
		}
	}
	return cs
}

func soloCommands(w *world, s *scenario) []flight.Command {
	k := soloKey
	f := w.flight(k)
	var cs []flight.Command
	add := func(c flight.Command) { cs = append(cs, c) }
	for _, fp := range [...]flight.Fingerprint{fp1, fp2} {
		if f == nil && fp == fp2 {
			continue // the first one is as good as the other
		}
		for _, n := range [...]flight.Nonce{nonce1, nonce2} {
			for _, c := range claims {
				add(openOf(k, s.policy, c, n, fp))
			}
		}
		add(&flight.Submit{Key: k, Submission: flight.Submission{Fingerprint: fp, Policy: s.policy}})
	}
	for _, n := range [...]flight.Nonce{nonce1, nonce2} {
		for _, c := range claims {
			add(&flight.Abandon{Key: k, Session: c.Session, Claim: c, Nonce: n, NotAfter: notAfter[n]})
		}
	}
	add(importOf(k, flight.Succeeded, "x", fp1))
	if f == nil {
		return cs
	}
	g := f.Generation
	add(importOf(k, flight.Succeeded, "y", fp1))
	add(importOf(k, flight.Refused, "", fp2))
	add(&flight.Redact{Key: k, Generation: g, Who: "ann", Why: "asked for"})
	for _, at := range w.issued[0] {
		add(reportOf(k, at, flight.Succeeded, "x"))
		add(reportOf(k, at, flight.Succeeded, "y"))
		add(reportOf(k, at, flight.Refused, ""))
		add(reportOf(k, at, flight.NotDone, ""))
		add(reportOf(k, at, flight.Unknown, ""))
		add(&flight.Abandon{Key: k, Generation: at.generation, Token: at.token})
	}
	for _, c := range claims {
		add(&flight.Recover{Key: k, Claim: c})
	}
	for _, verb := range [...]flight.Verb{flight.Happened, flight.DidNotHappen, flight.NoVerb} {
		for number := f.Probes; number > 0 && number+1 >= f.Probes; number-- {
			add(&flight.Verdict{Key: k, Generation: g, Probe: number, Result: verb, ExternalID: "x", Body: bodies["x"]})
		}
	}
	for _, verb := range [...]flight.Verb{flight.Happened, flight.DidNotHappen, flight.Fail} {
		add(&flight.Resolve{Key: k, Generation: g, Version: f.Version, Verb: verb, ExternalID: "x", Body: bodies["x"], Who: "ann", Why: "saw it"})
	}
	add(&flight.Resolve{Key: k, Generation: g, Verb: flight.Happened, ExternalID: "x", Body: bodies["x"]})
	add(&flight.Cancel{Key: k, Generation: g, Who: "ann"})
	add(&flight.Retry{Key: k, Generation: g, Who: "ann"})
	add(&flight.Free{Key: k, Generation: g, Who: "ann"})
	add(&flight.Expire{Key: k, Generation: g})
	return cs
}

func callbackCommands(w *world, _ *scenario) []flight.Command {
	var cs []flight.Command
	for _, at := range w.issued[0] {
		cs = append(cs, &flight.Suspend{Key: soloKey, Generation: at.generation, Token: at.token,
			Wake: flight.Wake{At: start.Add(12 * time.Second), Callback: true}})
	}
	if f := w.flight(soloKey); f != nil {
		cs = append(cs, &flight.WakeUp{Key: soloKey, Generation: f.Generation})
	}
	return cs
}

func approvalCommands(w *world, _ *scenario) []flight.Command {
	f := w.flight(soloKey)
	if f == nil {
		return nil
	}
	var cs []flight.Command
	for _, verb := range [...]flight.Verb{flight.Approved, flight.Rejected} {
		cs = append(cs,
			&flight.Decide{Key: soloKey, Generation: f.Generation, Fingerprint: fp1, Version: f.Version, Verb: verb, Who: "ann"},
			&flight.Decide{Key: soloKey, Generation: f.Generation, Fingerprint: fp2, Version: f.Version, Verb: verb},
			&flight.Decide{Key: soloKey, Generation: f.Generation, Fingerprint: fp1, Verb: verb})
	}
	return cs
}

func epochCommands(_ *world, s *scenario) []flight.Command {
	again := flight.Claim{Epoch: 2, Revision: 5, Session: sessB}
	return []flight.Command{
		&flight.RaiseEpoch{From: 1, Hold: 10 * time.Second},
		&flight.RaiseEpoch{From: 2, Hold: time.Second},
		&flight.Recover{Key: soloKey, Claim: again},
		openOf(soloKey, s.policy, again, nonce1, fp1),
		openOf(soloKey, s.policy, again, nonce2, fp1),
	}
}

func sagaCommands(w *world, s *scenario) []flight.Command {
	var cs []flight.Command
	add := func(c flight.Command) { cs = append(cs, c) }
	add(openOf(sagaKey, s.policy, claims[0], nonce1, fp1))
	add(openOf(sagaKey, s.policy, claims[1], nonce1, fp1))
	add(openOf(sagaKey, s.policy, claims[2], nonce2, fp1))
	add(&flight.Recover{Key: sagaKey, Claim: claims[2]})
	add(&flight.Seal{Key: stepKey})
	add(&flight.Seal{Key: undoKey})
	if f := w.flight(sagaKey); f != nil {
		add(&flight.Cancel{Key: sagaKey, Generation: f.Generation})
		add(&flight.WakeUp{Key: sagaKey, Generation: f.Generation})
		add(&flight.Retry{Key: sagaKey, Generation: f.Generation})
	}
	for _, driver := range w.issued[0] {
		add(&flight.Turn{Key: sagaKey, Generation: driver.generation, Token: driver.token})
		add(&flight.Suspend{Key: sagaKey, Generation: driver.generation, Token: driver.token})
		for _, o := range [...]flight.Outcome{flight.Succeeded, flight.Refused, flight.NotDone, flight.Unknown} {
			add(reportOf(sagaKey, driver, o, ""))
		}
		for _, k := range [...]flight.Key{stepKey, undoKey} {
			first := openOf(k, flight.Policy{Recovery: flight.Resend, Retention: retains}, claims[0], nonce1, fp1)
			first.Submission.Driver = driver.token
			second := *first
			second.Claim, second.Nonce = claims[1], nonce2
			add(first)
			add(&second)
			add(&flight.Submit{Key: k, Submission: first.Submission})
		}
	}
	for i, k := range [...]flight.Key{stepKey, undoKey} {
		for _, at := range w.issued[i+1] {
			for _, o := range [...]flight.Outcome{flight.Succeeded, flight.NotDone, flight.Unknown} {
				add(reportOf(k, at, o, ""))
			}
		}
		add(importOf(k, flight.Succeeded, "x", fp1))
		if f := w.flight(k); f != nil {
			add(&flight.Cancel{Key: k, Generation: f.Generation})
			add(&flight.Redact{Key: k, Generation: f.Generation})
			add(&flight.Expire{Key: k, Generation: f.Generation})
			add(&flight.Free{Key: k, Generation: f.Generation})
		}
	}
	return cs
}
