package flight_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// scenario is one policy with the commands that are applied under it.
type scenario struct {
	name   string
	policy flight.Policy
	keys   []flight.Key
	prefix []flight.Command
	extra  func(w *ledger, s *scenario) []flight.Command
	solo   bool // includes soloCommands
}

var retry2 = flight.RetryPolicy{Attempts: 2, MinBackoff: time.Second, MaxBackoff: 2 * time.Second}

func scenarios() []scenario {
	solo := func(name string, p flight.Policy, extra func(w *ledger, s *scenario) []flight.Command) scenario {
		p.Retention, p.SettleDelay, p.VerifyAttempts = retention, settleDelay, 2
		return scenario{name: name, policy: p, keys: []flight.Key{soloKey}, extra: extra, solo: true}
	}
	saga := scenario{name: "saga", policy: flight.Policy{Saga: true, Retention: retention}, keys: []flight.Key{sagaKey, stepKey, undoKey}, extra: sagaCommands}
	driven := saga
	driven.name = "saga, driven"
	saga.prefix = []flight.Command{&flight.Submit{Key: sagaKey, Submission: flight.Submission{Fingerprint: fp1, Policy: saga.policy}}}
	driven.prefix = append(saga.prefix, openOf(sagaKey, saga.policy, flight.Session{}, nonce1, fp1))
	lost := func(name string, p flight.Policy, more ...flight.Command) scenario {
		s := solo(name, p, nil)
		s.prefix = append([]flight.Command{openOf(soloKey, s.policy, sessions[0], nonce1, fp1), endSessionOf(sessions[0])}, more...)
		return s
	}
	restored := func(name string, p flight.Policy) scenario {
		s := lost(name, p)
		s.prefix, s.solo, s.extra = nil, false, backupCommands
		return s
	}
	return []scenario{
		solo("hold", flight.Policy{}, nil),
		solo("hold with retries", flight.Policy{Retry: retry2}, nil),
		solo("resend", flight.Policy{Recovery: flight.RecoveryResend}, nil),
		solo("resend with retries", flight.Policy{Recovery: flight.RecoveryResend, Retry: retry2}, nil),
		solo("resend in a window", flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: providerWindow}, nil),
		solo("resend in a window, with a look-up", flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: providerWindow, Lookup: true, Retry: retry2}, nil),
		solo("resend in a window, with a time-out", flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: providerWindow, AttemptTimeout: timeout}, nil),
		solo("resend in a window, with a wall clock that jumps", flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: providerWindow}, wallCommands),
		solo("verify", flight.Policy{Recovery: flight.RecoveryVerify}, nil),
		solo("verify with retries", flight.Policy{Recovery: flight.RecoveryVerify, Retry: retry2}, nil),
		solo("retries within a time", flight.Policy{Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 3, Within: providerWindow}}, nil),
		solo("scheduled", flight.Policy{RunAfter: settleDelay}, nil),
		solo("time-out under hold", flight.Policy{AttemptTimeout: timeout}, wakeUpCommands),
		solo("time-out under resend", flight.Policy{AttemptTimeout: timeout, Recovery: flight.RecoveryResend}, wakeUpCommands),
		solo("callback", flight.Policy{}, callbackCommands),
		solo("approval", flight.Policy{Approval: true, ApprovalWithin: 20 * time.Second}, approvalCommands),
		solo("new lease epoch", flight.Policy{}, epochCommands),
		solo("restored ledger", flight.Policy{Recovery: flight.RecoveryResend}, restoreCommands),
		restored("restored from a backup under hold", flight.Policy{}),
		restored("restored from a backup under resend", flight.Policy{Recovery: flight.RecoveryResend, Retry: retry2}),
		restored("restored from a backup under verify", flight.Policy{Recovery: flight.RecoveryVerify}),
		restored("restored from a backup, approval", flight.Policy{Approval: true}),
		solo("opens too far ahead", flight.Policy{}, farCommands),
		solo("time-out under hold, with a clock that steps", flight.Policy{AttemptTimeout: timeout}, stepping(wakeUpCommands)),
		solo("resend in a window, with a clock that steps", flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: 3 * providerWindow, AttemptTimeout: timeout}, stepping(wakeUpCommands)),
		solo("callback, with a clock that steps", flight.Policy{}, stepping(callbackCommands)),
		stepped(lost("verify, after a loss, with a clock that steps", flight.Policy{Recovery: flight.RecoveryVerify})),
		lost("hold, after a loss", flight.Policy{}),
		lost("resend, after a loss", flight.Policy{Recovery: flight.RecoveryResend}),
		lost("verify, after a loss", flight.Policy{Recovery: flight.RecoveryVerify}, &tick{by: settleDelay}),
		saga, driven,
	}
}

// TestExhaustive tries every sequence of up to six commands (five with -short). In each distinct state that fewer commands
// reach, every command is applied, checked and repeated.
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

// visit is a reached state, with its predecessor and the command that led to it.
type visit struct {
	w    *ledger
	from int
	by   flight.Command
}

func explore(t *testing.T, s *scenario, depth int) (states, steps int) {
	t.Helper()
	first := newLedger(s.keys...)
	for _, c := range s.prefix {
		next, _, err := first.apply(c)
		require.NoError(t, err)
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
				next, _, err := w.apply(c)
				steps++
				if err != nil {
					require.NoError(t, err, "the commands:\n%s  %s", pathTo(visits, level), describe(c))
				}
				if left == 1 || next.equals(w) {
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

func pathTo(visits []visit, at int) string {
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
		return fmt.Sprintf("time + %v, the wall clock %v ahead", c.by, c.ahead)
	case *restore:
		return "restored"
	case *flight.Open:
		return fmt.Sprintf("Open %v session %v nonce %d fingerprint %x store epoch %d", c.Key, c.Session, c.Nonce[0], c.Submission.Fingerprint[0], c.StoreEpoch)
	case *flight.Report:
		return fmt.Sprintf("Report %v %v %v %q", c.Key, c.Token, c.Outcome, c.ExternalID)
	}
	return fmt.Sprintf("%T %+v", c, c)
}

func (s *scenario) commands(w *ledger) []flight.Command {
	var cs []flight.Command
	if s.solo {
		cs = append(soloCommands(w, s), sessionCommands(soloKey)...)
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

func soloCommands(w *ledger, s *scenario) []flight.Command {
	k := soloKey
	f := w.flight(k)
	var cs []flight.Command
	add := func(c flight.Command) { cs = append(cs, c) }
	for _, n := range [...]flight.Nonce{nonce1, nonce2} {
		for _, x := range sessions[:2] {
			add(openOf(k, s.policy, x, n, fp1))
		}
		add(abandonOf(k, n))
	}
	add(&flight.Submit{Key: k, Submission: flight.Submission{Fingerprint: fp1, Policy: s.policy}})
	add(importOf(k, flight.OutcomeSucceeded, "x", fp1))
	if f == nil { // the first fingerprint is as good as the other
		return cs
	}
	g := f.Generation
	add(openOf(k, s.policy, sessions[1], nonce2, fp2))
	add(&flight.Submit{Key: k, Submission: flight.Submission{Fingerprint: fp2, Policy: s.policy}})
	add(importOf(k, flight.OutcomeSucceeded, "y", fp1))
	add(importOf(k, flight.OutcomeRefused, "", fp2))
	add(&flight.Redact{Key: k, Generation: g, Actor: "ann", Reason: "asked for"})
	for _, at := range w.openedAttempts[0] {
		add(reportOf(k, at, flight.OutcomeSucceeded, "x"))
		add(reportOf(k, at, flight.OutcomeSucceeded, "y"))
		add(reportOf(k, at, flight.OutcomeRefused, ""))
		add(reportOf(k, at, flight.OutcomeNotDone, ""))
		add(reportOf(k, at, flight.OutcomeUnknown, ""))
	}
	for _, verb := range [...]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingNone} {
		for number := f.Verifications; number > 0 && number+1 >= f.Verifications; number-- {
			add(&flight.ReportFinding{Key: k, Generation: g, Verification: number, Finding: verb, ExternalID: "x", Body: bodies["x"]})
		}
	}
	for _, verb := range [...]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingFail} {
		add(&flight.Resolve{Key: k, Generation: g, Version: f.Version, Finding: verb, ExternalID: "x", Body: bodies["x"], Actor: "ann", Reason: "saw it"})
	}
	add(&flight.Resolve{Key: k, Generation: g, Finding: flight.FindingHappened, ExternalID: "x", Body: bodies["x"]})
	add(&flight.Cancel{Key: k, Generation: g, Actor: "ann"})
	add(&flight.Retry{Key: k, Generation: g, Actor: "ann"})
	add(&flight.FreeKey{Key: k, Generation: g, Actor: "ann"})
	add(&flight.Expire{Key: k, Generation: g})
	return cs
}

// sessionCommands end sessions, by proofs that count and by proofs that do not, and withdraw them.
func sessionCommands(k flight.Key) []flight.Command {
	stale, otherEpoch, otherStore, wrongRevision := endSessionOf(sessions[0]), endSessionOf(sessions[0]), endSessionOf(sessions[0]), endSessionOf(sessions[0])
	stale.ReadRevision = sessions[0].Revision - 1
	otherEpoch.Epoch = 0
	otherStore.StoreEpoch = 2
	wrongRevision.Session.Revision, wrongRevision.ReadRevision = 0, 1 // it names the session wrongly
	return []flight.Command{endSessionOf(sessions[0]), endSessionOf(sessions[1]), stale, otherEpoch, otherStore, wrongRevision,
		&flight.WithdrawSession{Key: k, Session: sessions[1].ID, StoreEpoch: 1}}
}

func wakeUpCommands(w *ledger, _ *scenario) []flight.Command {
	if f := w.flight(soloKey); f != nil {
		return []flight.Command{&flight.WakeUp{Key: soloKey, Generation: f.Generation}}
	}
	return nil
}

func callbackCommands(w *ledger, s *scenario) []flight.Command {
	cs := wakeUpCommands(w, s)
	for _, at := range w.openedAttempts[0] {
		cs = append(cs, &flight.Suspend{Key: soloKey, Generation: at.generation, Token: at.token,
			Wake: flight.Wake{At: start.Add(12 * time.Second), Callback: true}})
	}
	return cs
}

// stepping adds steps of the ledger's clock, at most two.
func stepping(extra func(w *ledger, s *scenario) []flight.Command) func(w *ledger, s *scenario) []flight.Command {
	return func(w *ledger, s *scenario) []flight.Command {
		cs := extra(w, s)
		if w.header.Steps < 40*time.Second {
			cs = append(cs, &flight.Tick{StepTo: w.header.Now.Add(20 * time.Second)})
		}
		return cs
	}
}

func stepped(s scenario) scenario {
	s.extra = stepping(func(*ledger, *scenario) []flight.Command { return nil })
	return s
}

// wallCommands let the leader's wall clock jump ahead, once.
func wallCommands(w *ledger, _ *scenario) []flight.Command {
	if w.header.Wall > 0 {
		return nil
	}
	return []flight.Command{&tick{ahead: providerWindow}}
}

func approvalCommands(w *ledger, _ *scenario) []flight.Command {
	f := w.flight(soloKey)
	if f == nil {
		return nil
	}
	var cs []flight.Command
	for _, verb := range [...]flight.Finding{flight.FindingApproved, flight.FindingRejected} {
		cs = append(cs,
			&flight.DecideApproval{Key: soloKey, Generation: f.Generation, Fingerprint: fp1, Version: f.Version, Finding: verb, Actor: "ann"},
			&flight.DecideApproval{Key: soloKey, Generation: f.Generation, Fingerprint: fp2, Version: f.Version, Finding: verb},
			&flight.DecideApproval{Key: soloKey, Generation: f.Generation, Fingerprint: fp1, Finding: verb})
	}
	cs = append(cs, &flight.WakeUp{Key: soloKey, Generation: f.Generation})
	return cs
}

// epochCommands are those of an etcd that has lost its past: the sessions before are void, a new one has a lower revision.
func epochCommands(_ *ledger, s *scenario) []flight.Command {
	again := flight.Session{ID: "D", Revision: 5, Epoch: 2}
	older, newer := endSessionOf(sessions[0]), endSessionOf(again)
	older.Epoch, newer.Epoch = 2, 2
	return []flight.Command{
		&flight.RaiseEpoch{From: 1, Hold: 10 * time.Second},
		&flight.RaiseEpoch{From: 2, Hold: time.Second},
		&flight.RecordGuard{Epoch: 1, Counter: 3}, &flight.RecordGuard{Epoch: 1, Counter: 2},
		older, newer, &flight.WakeUp{Key: soloKey, Generation: 1},
		openOf(soloKey, s.policy, again, nonce1, fp1),
		openOf(soloKey, s.policy, again, nonce2, fp1),
	}
}

// restoreCommands are those of a restored ledger: commands of its own store epoch, and reports of attempts that it has lost.
func restoreCommands(w *ledger, s *scenario) []flight.Command {
	ended := endSessionOf(sessions[0])
	ended.StoreEpoch = 2
	abandon := abandonOf(soloKey, nonce1)
	abandon.StoreEpoch = 2
	cs := []flight.Command{&restore{}, ended, abandon, &flight.WithdrawSession{Key: soloKey, Session: sessions[1].ID, StoreEpoch: 2}}
	for i, n := range [...]flight.Nonce{nonce1, nonce2} {
		open := openOf(soloKey, s.policy, sessions[i], n, fp1)
		open.StoreEpoch = 2
		cs = append(cs, open)
	}
	for _, lost := range [...]attemptRef{{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 3}}, {generation: 2, token: flight.Token{StoreEpoch: 1, Number: 5}}} {
		cs = append(cs, reportOf(soloKey, lost, flight.OutcomeSucceeded, "y"), reportOf(soloKey, lost, flight.OutcomeUnknown, ""))
	}
	for _, at := range w.openedAttempts[0] {
		at.token.StoreEpoch = 2
		cs = append(cs, reportOf(soloKey, at, flight.OutcomeSucceeded, "x"), reportOf(soloKey, at, flight.OutcomeNotDone, ""))
	}
	return cs
}

// backupCommands are those of a ledger before and after it was restored from a backup, whose lost ledger had two more
// attempts.
func backupCommands(w *ledger, s *scenario) []flight.Command {
	h, k, generation := &w.header, soloKey, uint32(1)
	cs := []flight.Command{&flight.Restore{From: 1, Hold: time.Minute}, &flight.FinishRestore{Epoch: h.StoreEpoch}, importOf(k, flight.OutcomeSucceeded, "x", fp1)}
	for i, n := range [...]flight.Nonce{nonce1, nonce2} {
		open := openOf(k, s.policy, flight.Session{ID: flight.SessionID(rune('D' + i)), Revision: 5, Epoch: h.LeaseEpoch}, n, fp1)
		open.StoreEpoch = h.StoreEpoch
		abandon := abandonOf(k, n)
		abandon.StoreEpoch = h.StoreEpoch
		cs = append(cs, open, abandon)
	}
	if f := w.flight(k); f != nil {
		generation = f.Generation
		cs = append(cs, &flight.Cancel{Key: k, Generation: generation}, &flight.FreeKey{Key: k, Generation: generation}, &flight.Retry{Key: k, Generation: generation},
			&flight.Redact{Key: k, Generation: generation}, &flight.WakeUp{Key: k, Generation: generation}, &flight.Expire{Key: k, Generation: generation},
			&flight.ReportFinding{Key: k, Generation: generation, Verification: f.Verifications, Finding: flight.FindingNotHappened})
		for _, verb := range [...]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingFail} {
			cs = append(cs, &flight.Resolve{Key: k, Generation: generation, Version: f.Version, Finding: verb, ExternalID: "x", Body: bodies["x"]})
		}
	}
	refs := append([]attemptRef{{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 3}}}, w.openedAttempts[0]...)
	for _, at := range refs {
		cs = append(cs, reportOf(k, at, flight.OutcomeSucceeded, "x"), reportOf(k, at, flight.OutcomeRefused, ""), reportOf(k, at, flight.OutcomeNotDone, ""),
			reportOf(k, at, flight.OutcomeUnknown, ""))
	}
	second := attemptRef{generation: 2, token: flight.Token{StoreEpoch: 1, Number: 4}}
	if h.Reconciling {
		cs = append(cs, &flight.FinishRestore{Epoch: h.StoreEpoch, Force: true})
	}
	return append(cs, reportOf(k, second, flight.OutcomeSucceeded, "y"), reportOf(k, second, flight.OutcomeUnknown, ""))
}

func farCommands(_ *ledger, s *scenario) []flight.Command {
	never := abandonOf(soloKey, flight.Nonce{4})
	never.NotAfter = start.Add(3 * time.Hour)
	return []flight.Command{
		openOf(soloKey, s.policy, sessions[0], nonce3, fp1), openOf(soloKey, s.policy, sessions[1], nonce3, fp1),
		abandonOf(soloKey, nonce3), never,
	}
}

func sagaCommands(w *ledger, s *scenario) []flight.Command {
	var cs []flight.Command
	add := func(c flight.Command) { cs = append(cs, c) }
	add(openOf(sagaKey, s.policy, flight.Session{}, nonce1, fp1))
	add(openOf(sagaKey, s.policy, flight.Session{}, nonce2, fp1))
	add(openOf(sagaKey, s.policy, sessions[2], nonce2, fp1))
	add(abandonOf(sagaKey, nonce1))
	for _, x := range sessions {
		add(endSessionOf(x))
	}
	add(&flight.WithdrawSession{Key: stepKey, Session: sessions[1].ID, StoreEpoch: 1})
	add(&flight.SealKey{Key: stepKey})
	add(&flight.SealKey{Key: undoKey})
	if f := w.flight(sagaKey); f != nil {
		add(&flight.Cancel{Key: sagaKey, Generation: f.Generation})
		add(&flight.WakeUp{Key: sagaKey, Generation: f.Generation})
		add(&flight.Retry{Key: sagaKey, Generation: f.Generation})
	}
	step := flight.Policy{Recovery: flight.RecoveryResend, Retention: retention}
	for _, driver := range w.openedAttempts[0] {
		add(&flight.BeginUndo{Key: sagaKey, Generation: driver.generation, Token: driver.token})
		add(&flight.PassPivot{Key: sagaKey, Generation: driver.generation, Token: driver.token})
		add(&flight.Suspend{Key: sagaKey, Generation: driver.generation, Token: driver.token})
		add(&flight.Suspend{Key: sagaKey, Generation: driver.generation, Token: driver.token, Wake: flight.Wake{Marked: true}})
		add(&flight.SealKey{Key: stepKey, Driver: driver.token})
		add(&flight.SealKey{Key: undoKey, Driver: driver.token})
		for _, k := range [...]flight.Key{stepKey, undoKey} {
			add(&flight.Cancel{Key: k, Generation: 1, Driver: driver.token})
		}
		for _, o := range [...]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeUnknown} {
			add(reportOf(sagaKey, driver, o, ""))
		}
		for _, k := range [...]flight.Key{stepKey, undoKey} { // the driver performs the step, or submits it
			open := openOf(k, step, sessions[0], nonce1, fp1)
			open.Submission.Driver = driver.token
			add(open)
			add(&flight.Submit{Key: k, Submission: open.Submission})
		}
	}
	for i, k := range [...]flight.Key{stepKey, undoKey} {
		add(openOf(k, step, sessions[1], nonce2, fp1)) // a worker of a pool
		for _, at := range w.openedAttempts[i+1] {
			for _, o := range [...]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeUnknown} {
				add(reportOf(k, at, o, ""))
			}
		}
		add(importOf(k, flight.OutcomeSucceeded, "x", fp1))
		if f := w.flight(k); f != nil {
			add(&flight.Cancel{Key: k, Generation: f.Generation})
			add(&flight.Redact{Key: k, Generation: f.Generation})
			add(&flight.Expire{Key: k, Generation: f.Generation})
			add(&flight.FreeKey{Key: k, Generation: f.Generation})
		}
	}
	return cs
}
