package flight_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// callbackWorld has one flight, the callers of its attempts, and the jobs that they start at a provider, which calls back. Each
// command is applied by the rules; only the way of a callback to the ledger comes from the definition that is explored.
type callbackWorld struct {
	header  flight.Header
	flight  *flight.Flight
	callers []callbackCaller
	jobs    []callbackJob // one per attempt; under resend one for all
	taken   uint8         // the outcomes of the callbacks that counted for the first attempt; the provider repeats them for ever
}

// callbackCaller is the caller of an attempt.
type callbackCaller struct {
	token   flight.CallbackToken // that the provider was given
	fencing flight.Token
	mayAct  bool // it trusts its session, and has neither reported, suspended nor abandoned
	started bool
	dead    bool // its session has ended
	told    bool // its suspend was answered
}

type callbackJob uint8

const (
	jobNone callbackJob = iota
	jobPending
	jobDone
	jobFailed
)

// callbackRule is a definition of callbacks.
type callbackRule struct {
	name     string
	recovery flight.Recovery
	// reportOf returns the report of a callback; false: the provider is asked to call again. nil: as the product does.
	reportOf func(w *callbackWorld, c flight.CallbackToken, o flight.Outcome) (flight.Token, bool)
	// ownToken: each attempt has a callback token of its own.
	ownToken bool
	// fenceReported: a suspend does not accept an attempt that its callback has reported.
	fenceReported bool
	// holdsOn: the session goes on to hold an attempt that waits.
	holdsOn  bool
	violates string // the property that the definition breaks; "": none
}

func callbackRules() []callbackRule {
	taken := func(_ *callbackWorld, c flight.CallbackToken, _ flight.Outcome) (flight.Token, bool) {
		return c.Token, true
	}
	newest := func(w *callbackWorld, _ flight.CallbackToken, _ flight.Outcome) (flight.Token, bool) {
		return w.header.TokenOf(w.flight.Newest()), w.flight.State != flight.StateRunning
	}
	return []callbackRule{
		{name: "hold"},
		{name: "resend", recovery: flight.RecoveryResend},
		{name: "verify", recovery: flight.RecoveryVerify},
		{name: "every callback is taken before the suspend", reportOf: taken, violates: "two may act"},
		{name: "a callback names no attempt", reportOf: newest, violates: "wrong receipt"},
		{name: "under resend a callback counts for its attempt alone", recovery: flight.RecoveryResend, ownToken: true, reportOf: func(w *callbackWorld, c flight.CallbackToken, o flight.Outcome) (flight.Token, bool) {
			return c.Token, o == flight.OutcomeSucceeded || w.flight.State != flight.StateRunning
		}, violates: "success lost"},
		{name: "under resend every callback counts for the newest attempt", recovery: flight.RecoveryResend, reportOf: newest, violates: "an old callback counts"},
		{name: "a suspend after its callback is fenced", fenceReported: true, violates: "told that it is over"},
		{name: "the session holds a waiting attempt", holdsOn: true, violates: "ended early"},
	}
}

func (w *callbackWorld) job(i int) int {
	if w.flight.Policy.Recovery == flight.RecoveryResend {
		return 0
	}
	return i
}

func (w *callbackWorld) has(states ...callbackJob) bool {
	return slices.ContainsFunc(w.jobs, func(j callbackJob) bool { return slices.Contains(states, j) })
}

func (w *callbackWorld) clone() *callbackWorld {
	next := *w
	next.callers, next.jobs = slices.Clone(w.callers), slices.Clone(w.jobs)
	next.header.Version.Index++
	return &next
}

// abstract is what distinguishes two states.
func (w *callbackWorld) abstract() string {
	var b strings.Builder
	fmt.Fprint(&b, w.header.Now, w.jobs)
	for _, c := range w.callers {
		fmt.Fprint(&b, c.mayAct, c.started, c.dead, c.told)
	}
	fmt.Fprint(&b, w.taken)
	if f := w.flight; f != nil {
		fmt.Fprint(&b, f.State, f.TaintingAttempts, f.Cancel != nil, f.Receipt != nil, len(f.Evidence), f.Overlap, f.Wake, f.NotBefore)
		for _, a := range f.Attempts {
			fmt.Fprint(&b, a.IsOpen(), a.Lost, a.ReportedOutcomes, a.Taints, a.Callbacks)
		}
		if v := f.Verification; v != nil {
			fmt.Fprint(&b, v.NotBefore, v.Tries, v.Session != flight.Session{}, v.Until)
		}
	}
	return b.String()
}

const maxCallbackAttempts = 2

// callbackStep is a successor of a state; broken names the property that it breaks.
type callbackStep struct {
	by     string
	world  *callbackWorld
	broken string
}

// apply applies a command to a copy of the world.
func (w *callbackWorld) apply(c flight.Command) (*callbackWorld, flight.Reply, string) {
	next := w.clone()
	after, reply := flight.Apply(flight.View{Header: next.header, Flight: w.flight}, c)
	next.header, next.flight = after.Header, after.Flight
	next.header.Version = flight.Version{Index: w.header.Version.Index + 1}
	return next, reply, w.judge(next, c, reply)
}

// judge names the property that a command breaks.
func (w *callbackWorld) judge(next *callbackWorld, c flight.Command, reply flight.Reply) string {
	if reply.Decision == flight.DecisionProceed || reply.Decision == flight.DecisionVerify {
		for _, caller := range w.callers {
			if caller.mayAct {
				return "two may act"
			}
		}
	}
	if f := w.flight; f != nil && f.State == flight.StateWaiting && next.flight.State != flight.StateWaiting {
		_, reported := c.(*flight.Report)
		if !reported && w.header.Now < f.Wake.At {
			return "ended early"
		}
	}
	return ""
}

func (w *callbackWorld) successors(rule *callbackRule) (all []callbackStep) {
	key, nonce := soloKey, func(i int) flight.Nonce { return flight.Nonce{byte(i) + 1} }
	session := func(i int) flight.Session {
		return flight.Session{ID: flight.SessionID(rune('A' + i)), Revision: 1, Epoch: w.header.LeaseEpoch}
	}
	add := func(by string, next *callbackWorld, broken string) {
		effects := 0
		for _, j := range next.jobs {
			if j == jobDone {
				effects++
			}
		}
		switch f := next.flight; {
		case broken != "":
		case effects > 1:
			broken = "second effect"
		case f != nil && f.State == flight.StateFailed && f.Receipt != nil && next.has(jobPending, jobDone):
			broken = "wrong receipt"
		}
		all = append(all, callbackStep{by, next, broken})
	}
	f := w.flight
	if len(w.callers) < maxCallbackAttempts || f.Verifying() {
		i := len(w.callers)
		policy := flight.Policy{Recovery: rule.recovery, SettleDelay: time.Second, VerifyAttempts: 2}
		// A look-up has a nonce and a session of its own.
		if f.Verifying() {
			i = 8 + int(f.Verifications)
		}
		next, reply, broken := w.apply(&flight.Open{Key: key, Submission: flight.Submission{Policy: policy}, Session: session(i), Nonce: nonce(i), NotAfter: w.header.Now,
			StoreEpoch: w.header.StoreEpoch})
		if reply.Decision == flight.DecisionProceed {
			caller := callbackCaller{token: next.flight.CallbackToken(&next.header), fencing: reply.Token, mayAct: true}
			if rule.ownToken {
				caller.token.Token = reply.Token
			}
			next.callers = append(next.callers, caller)
			if rule.recovery != flight.RecoveryResend || len(next.jobs) == 0 {
				next.jobs = append(next.jobs, jobNone)
			}
		}
		add("open", next, broken)
	}
	if f == nil {
		return all
	}
	for i, c := range w.callers {
		name := func(what string) string { return fmt.Sprintf("%s %d", what, i+1) }
		change := func(what string, change func(*callbackWorld)) {
			next := w.clone()
			change(next)
			add(name(what), next, "")
		}
		report := func(what string, token flight.Token, o flight.Outcome) *callbackWorld {
			next, _, broken := w.apply(&flight.Report{Key: key, Generation: f.Generation, Token: token, Outcome: o, ExternalID: o.String(), Error: what})
			if o == flight.OutcomeSucceeded && !next.flight.State.Terminal() {
				broken = "success lost"
			}
			if what == "callback" && f.Policy.Recovery == flight.RecoveryResend && o != flight.OutcomeSucceeded {
				old := w.taken&(1<<o) != 0 && len(f.Attempts) > 1
				if before := f.Newest(); old && before.ReportedOutcomes&(1<<o) == 0 && next.flight.Newest().ReportedOutcomes != before.ReportedOutcomes {
					broken = "an old callback counts"
				}
				if len(f.Attempts) == 1 {
					next.taken |= 1 << o
				}
			}
			add(name(what+" "+o.String()), next, broken)
			return next
		}
		if job := w.job(i); c.mayAct && !c.started {
			change("start", func(next *callbackWorld) {
				next.callers[i].started = true
				if next.jobs[job] == jobNone || next.jobs[job] == jobFailed {
					next.jobs[job] = jobPending
				}
			})
			next, _, broken := w.apply(&flight.Abandon{Key: key, Nonce: nonce(i), NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch})
			next.callers[i].mayAct = false
			add(name("abandon"), next, broken)
		}
		// The provider calls the URL that it was given first, as often as it likes. Outcomes other than success may be late.
		if c.started && (w.job(i) == i || rule.recovery == flight.RecoveryResend && i == slices.IndexFunc(w.callers, func(c callbackCaller) bool { return c.started })) {
			outcomes := map[callbackJob][]flight.Outcome{jobPending: {flight.OutcomeUnknown}, jobDone: {flight.OutcomeSucceeded}, jobFailed: {flight.OutcomeNotDone, flight.OutcomeRefused}}
			says := outcomes[w.jobs[w.job(i)]]
			for _, old := range []flight.Outcome{flight.OutcomeUnknown, flight.OutcomeNotDone, flight.OutcomeRefused} {
				if w.taken&(1<<old) != 0 && !slices.Contains(says, old) {
					says = append(slices.Clip(says), old)
				}
			}
			for _, o := range says {
				var token flight.Token
				taken := false
				if rule.reportOf == nil {
					var early bool
					token, early, _ = c.token.ReportOf(f, &w.header, &flight.Report{Outcome: o, ExternalID: o.String(), Error: "callback"})
					taken = !early
				} else {
					token, taken = rule.reportOf(w, c.token, o)
				}
				if taken {
					report("callback", token, o)
				}
			}
		}
		if c.mayAct || c.told { // also late copies
			next, reply, broken := w.apply(&flight.Suspend{Key: key, Generation: f.Generation, Token: c.fencing, Wake: flight.Wake{At: start.Add(2 * time.Second), Callback: true}})
			decision := reply.Decision
			if a := f.Newest(); rule.fenceReported && decision == flight.DecisionAccepted && !a.IsOpen() {
				decision = flight.DecisionFenced
			}
			if a := f.Newest(); c.mayAct && decision != flight.DecisionAccepted && w.header.TokenOf(a) == c.fencing && !a.Lost {
				broken = "told that it is over"
			}
			next.callers[i].mayAct, next.callers[i].told = false, true
			add(name("suspend"), next, broken)
		}
		if c.mayAct || c.told {
			outcomes := []flight.Outcome{flight.OutcomeUnknown}
			if !c.started {
				outcomes = append(outcomes, flight.OutcomeNotDone)
			}
			for _, o := range outcomes {
				report("report", c.fencing, o).callers[i].mayAct = false
			}
		}
		if !c.dead {
			change("session over", func(next *callbackWorld) { next.callers[i].mayAct, next.callers[i].dead = false, true })
			continue
		}
		before := w
		if rule.holdsOn && f.State == flight.StateWaiting && f.OpenAttempt() != nil {
			before = w.clone()
			held := *f
			held.State, held.Wake = flight.StateRunning, nil
			before.flight = &held
		}
		next, _, broken := before.apply(&flight.EndSession{Session: session(i), ReadRevision: 2, Epoch: w.header.LeaseEpoch, StoreEpoch: w.header.StoreEpoch})
		if f.State == flight.StateWaiting && next.flight.State != flight.StateWaiting && next.flight.OpenAttempt() == nil {
			broken = "ended early"
		}
		if before == w || next.flight.OpenAttempt() == nil {
			add(name("session ended"), next, broken)
		}
	}
	for j, state := range w.jobs {
		if state == jobPending {
			for to, word := range map[callbackJob]string{jobDone: "done", jobFailed: "failed"} {
				next := w.clone()
				next.jobs[j] = to
				add(fmt.Sprintf("job %d is %s", j+1, word), next, "")
			}
		}
	}
	var findings []flight.Finding
	if !testing.Short() {
		findings = append(findings, flight.FindingFail)
	}
	switch { // a person, or a look-up, says only what the provider shows
	case w.has(jobDone):
		findings = append(findings, flight.FindingHappened)
	case !w.has(jobPending):
		findings = append(findings, flight.FindingNotHappened)
	}
	for _, finding := range findings {
		next, _, broken := w.apply(&flight.Resolve{Key: key, Generation: f.Generation, Version: f.Version, Finding: finding, ExternalID: "succeeded"})
		add("resolve "+finding.String(), next, broken)
		if v := f.Verification; v != nil && finding != flight.FindingFail {
			next, _, broken := w.apply(&flight.ReportFinding{Key: key, Generation: f.Generation, Verification: v.Number, Finding: finding, ExternalID: "succeeded"})
			add("look-up: "+finding.String(), next, broken)
		}
	}
	if v := f.Verification; v != nil {
		next, _, broken := w.apply(&flight.ReportFinding{Key: key, Generation: f.Generation, Verification: v.Number})
		add("look-up: inconclusive", next, broken)
	}
	if !testing.Short() {
		next, _, broken := w.apply(&flight.Cancel{Key: key, Generation: f.Generation})
		add("cancel", next, broken)
	}
	next, _, broken := w.apply(&flight.WakeUp{Key: key, Generation: f.Generation})
	add("wake", next, broken)
	if w.header.Now < start.Add(3*time.Second) {
		next := w.clone()
		next.header.Now = w.header.Now.Add(time.Second)
		add("a second later", next, "")
	}
	return all
}

// TestCallbacks_Explored reaches every state of a flight whose attempts wait for callbacks, with two attempts: suspends and
// callbacks in any order and repeated, ends of sessions, deadlines, cancels, look-ups and decisions of people. The definitions
// that break a property are why the rules are as they are.
func TestCallbacks_Explored(t *testing.T) {
	for _, rule := range callbackRules() {
		t.Run(rule.name, func(t *testing.T) {
			type visited struct {
				world *callbackWorld
				from  int
				by    string
			}
			first := &callbackWorld{header: testHeader}
			first.header.Now, first.header.Version = start, flight.Version{Index: 1}
			found, list := map[string]bool{first.abstract(): true}, []visited{{world: first}}
			seen := make(map[flight.State]int)
			for n := 0; n < len(list); n++ {
				for _, s := range list[n].world.successors(&rule) {
					if s.broken != "" {
						trace := []string{s.by}
						for k := n; k > 0; k = list[k].from {
							trace = append([]string{list[k].by}, trace...)
						}
						require.Equal(t, rule.violates, s.broken, strings.Join(trace, ", "))
						t.Logf("%s after %s (%d states)", s.broken, strings.Join(trace, ", "), len(list))
						return
					}
					if key := s.world.abstract(); !found[key] {
						found[key] = true
						require.Less(t, len(list), 600_000, "the states have no end")
						list = append(list, visited{s.world, n, s.by})
						if f := s.world.flight; f != nil {
							seen[f.State]++
						}
					}
				}
			}
			require.Empty(t, rule.violates, "the definition holds in %d states", len(list))
			require.Greater(t, seen[flight.StateWaiting], 100)
			require.Greater(t, seen[flight.StateSucceeded], 100)
			t.Logf("holds in %d states: %v", len(list), slices.Sorted(maps.Keys(seen)))
		})
	}
}
