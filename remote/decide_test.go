package remote

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// The explored views have one key that two callers open, each under its own session. "own" is the caller of the view.
var (
	ownNonce, otherNonce = flight.Nonce{1}, flight.Nonce{2}
	exploredKey          = flight.MustKey("billing/charge/42")
	exploredInput        = flight.Submission{Fingerprint: flight.Fingerprint{1}}
)

// explored is a state of the ledger that the rules can reach.
type explored struct {
	header flight.Header
	flight *flight.Flight
}

func exploredPolicies() map[string]flight.Policy {
	return map[string]flight.Policy{
		"hold":            {},
		"resend":          {Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 2, MinBackoff: 10 * time.Second, MaxBackoff: 10 * time.Second}},
		"verify":          {Recovery: flight.RecoveryVerify, SettleDelay: 5 * time.Second},
		"hold, time-out":  {AttemptTimeout: 10 * time.Second},
		"approval":        {Approval: true},
		"runs later":      {RunAfter: 20 * time.Second},
		"resend, window":  {Recovery: flight.RecoveryResend, ProviderWindow: 20 * time.Second},
		"verify, timeout": {Recovery: flight.RecoveryVerify, AttemptTimeout: 10 * time.Second},
	}
}

// steps returns the commands that may be proposed in a state, and the times to advance to.
func (e *explored) steps(p flight.Policy) (commands []flight.Command, times []time.Duration) {
	h, f := &e.header, e.flight
	commands = append(commands, openOf(h, p, ownNonce), openOf(h, p, otherNonce), &flight.RaiseEpoch{From: h.LeaseEpoch, Hold: 30 * time.Second})
	for _, n := range []flight.Nonce{ownNonce, otherNonce} {
		commands = append(commands, &flight.Abandon{Key: exploredKey, Nonce: n, NotAfter: h.Now.Add(30 * time.Second)})
	}
	if f == nil {
		return commands, nil
	}
	g := f.Generation
	if holder := f.Holder(); holder != nil {
		commands = append(commands, &flight.EndSession{Session: *holder, ReadRevision: 100, Epoch: h.LeaseEpoch})
	}
	if a := f.Newest(); a != nil {
		for o := flight.OutcomeSucceeded; o <= flight.OutcomeUnknown; o++ {
			commands = append(commands, &flight.Report{Key: exploredKey, Generation: g, Token: a.Token(), Outcome: o})
		}
		for _, at := range []flight.Time{0, h.Now.Add(20 * time.Second)} {
			commands = append(commands, &flight.Suspend{Key: exploredKey, Generation: g, Token: a.Token(), Wake: flight.Wake{Callback: true, At: at}})
		}
	}
	if f.Verification != nil {
		for v := flight.FindingNone; v <= flight.FindingNotHappened; v++ {
			commands = append(commands, &flight.ReportFinding{Key: exploredKey, Generation: g, Verification: f.Verification.Number, Finding: v})
		}
	}
	commands = append(commands, &flight.WakeUp{Key: exploredKey, Generation: g}, &flight.Cancel{Key: exploredKey, Generation: g},
		&flight.FreeKey{Key: exploredKey, Generation: g}, &flight.Expire{Key: exploredKey, Generation: g},
		&flight.Resolve{Key: exploredKey, Generation: g, Version: f.Version, Finding: flight.FindingNotHappened},
		&flight.DecideApproval{Key: exploredKey, Generation: g, Fingerprint: f.Fingerprint, Version: f.Version, Finding: flight.FindingApproved})
	return commands, []time.Duration{6 * time.Second, 35 * time.Second, 31 * 24 * time.Hour}
}

func openOf(h *flight.Header, p flight.Policy, nonce flight.Nonce) *flight.Open {
	s := exploredInput
	s.Policy = p
	session := flight.Session{ID: flight.SessionID(fmt.Sprintf("ses_%d", nonce[0])), Revision: int64(10 + nonce[0]), Epoch: h.LeaseEpoch}
	return &flight.Open{Key: exploredKey, Submission: s, Session: session, Nonce: nonce, NotAfter: h.Now.Add(30 * time.Second)}
}

// reachable returns all states within depth steps. With recovery verify the first state has an attempt of the other
// caller that was reported as unknown.
func reachable(p flight.Policy, depth int) []explored {
	start := explored{header: flight.Header{Secret: []byte("secret"), Deployment: "d", Now: 1_000_000}}
	if p.Recovery == flight.RecoveryVerify {
		v, opened := flight.Apply(flight.View{Header: start.header}, openOf(&start.header, p, otherNonce))
		v, _ = flight.Apply(v, &flight.Report{Key: exploredKey, Generation: 1, Token: opened.Token, Outcome: flight.OutcomeUnknown})
		start.flight = v.Flight
	}
	all, seen := []explored{start}, map[string]bool{}
	for from := 0; depth > 0; depth-- {
		for end := len(all); from < end; from++ {
			e := all[from]
			commands, times := e.steps(p)
			for _, d := range times {
				next := e
				next.header.Now = e.header.Now.Add(d)
				all = appendNew(all, seen, next)
			}
			for _, c := range commands {
				e.header.Version.Index++
				v, _ := flight.Apply(flight.View{Header: e.header, Flight: e.flight}, c)
				all = appendNew(all, seen, explored{header: v.Header, flight: v.Flight})
			}
		}
	}
	return all
}

func appendNew(all []explored, seen map[string]bool, e explored) []explored {
	// decide does not depend on versions, and with them each path to a state would be another state.
	e.header.Version = flight.Version{}
	if e.flight != nil {
		f := *e.flight
		f.Version = flight.Version{}
		e.flight = &f
	}
	digest := fmt.Sprintf("%v %v %v %+v", e.header.Now, e.header.LeaseEpoch, e.header.EpochHold, flatten(e.flight))
	if seen[digest] {
		return all
	}
	seen[digest] = true
	return append(all, e)
}

// flatten returns a flight's fields with pointers replaced by values, for comparison as text.
func flatten(f *flight.Flight) any {
	if f == nil {
		return nil
	}
	var probe flight.Verification
	var wake flight.Wake
	if f.Verification != nil {
		probe = *f.Verification
	}
	if f.Wake != nil {
		wake = *f.Wake
	}
	return []any{f.State, f.Generation, f.Attempts, f.TaintingAttempts, f.NotBefore, f.Verification != nil, probe, f.Wake != nil, wake, f.Cancel != nil, f.UsedNonces, f.Fence}
}

func (e *explored) view(s *flight.Submission) view {
	return view{submission: s, nonce: ownNonce, flight: e.flight, header: e.header, now: e.header.Now, callerWaits: true}
}

func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("a pure function has no race, and the detector makes this slow")
	}
}

// TestDecide_AgreesWithTheLedger compares decide with the ledger's rules in every reachable state: an answer from a
// view is the answer of the ledger, and decide proposes exactly if the Open would change the flight.
func TestDecide_AgreesWithTheLedger(t *testing.T) {
	skipUnderRace(t)
	depth := 5
	if testing.Short() {
		depth = 4
	}
	total := 0
	for name, p := range exploredPolicies() {
		t.Run(name, func(t *testing.T) {
			all := reachable(p, depth)
			total += len(all)
			for i := range all {
				e := &all[i]
				for flags := range 1 << 2 {
					e.header.Reconciling = flags&2 != 0
					v := e.view(&exploredInput)
					v.proposed = flags&1 != 0
					d := decide(&v)
					_, reply := flight.Apply(flight.View{Header: e.header, Flight: e.flight}, openOf(&e.header, p, ownNonce))
					require.True(t, agrees(d.action, &reply, e.flight), "row %d: action %d, and the ledger says %v (changed: %v) of %+v at %v",
						d.row, d.action, reply.Decision, reply.Changed, flatten(e.flight), e.header.Now)
				}
			}
			t.Logf("%d states", len(all))
		})
	}
	t.Logf("%d states", total)
}

func agrees(a action, reply *flight.Reply, before *flight.Flight) bool {
	switch d := reply.Decision; a {
	case actionAnswerFlight:
		return d == flight.DecisionReplay || d == flight.DecisionExpired || d == flight.DecisionInDoubt || d == flight.DecisionAwaitingApproval
	case actionRenewSession:
		return d == flight.DecisionProceed && !reply.Changed || d == flight.DecisionVerify && !reply.Changed
	case actionLeaseLost: // the verification's session has ended: the ledger would assign it again
		return d == flight.DecisionVerify && !reply.Changed && before.Holder() == nil
	case actionFenced:
		return d == flight.DecisionFenced
	case actionWait:
		return d == flight.DecisionBusy && !reply.Changed
	case actionReconciling:
		return d == flight.DecisionReconciling && !reply.Changed
	case actionOpen:
		return reply.Changed
	}
	return false
}

// TestDecide_EveryViewIsSafe combines every flight that decide can distinguish with every other field of a view: every
// view has an action, every row is reached, and no action is unsafe.
func TestDecide_EveryViewIsSafe(t *testing.T) {
	skipUnderRace(t)
	flights := map[string]explored{}
	for _, p := range exploredPolicies() {
		for _, e := range reachable(p, 4) {
			for _, differs := range []bool{false, true} {
				flights[features(&e, differs)] = e
			}
		}
	}
	other := flight.Submission{Fingerprint: flight.Fingerprint{2}}
	views, rows := 0, map[int]int{}
	for name, e := range flights {
		submission := &exploredInput
		if name[0] == 'd' {
			submission = &other
		}
		before, first := flatten(e.flight), e.view(submission)
		known := factsOf(&first)
		eachView(first, func(v *view) {
			v.header.Reconciling = v.proposed && v.isStep // in a quarter of the views
			d := decide(v)
			if wrong := known.unsafe(v, &d); wrong != "" {
				t.Fatalf("row %d: %s: action %d for %+v, flight %+v", d.row, wrong, d.action, *v, flatten(v.flight))
			}
			views++
			rows[d.row]++
		})
		require.Equal(t, before, flatten(e.flight), "decide changes nothing")
	}
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for _, row := range regexp.MustCompile(`(?m)^//\t ?(\d+)  `).FindAllSubmatch(doc, -1) {
		n, err := strconv.Atoi(string(row[1]))
		require.NoError(t, err)
		require.NotZero(t, rows[n], "row %d of the table is never reached", n)
		delete(rows, n)
	}
	require.Empty(t, rows, "rows that are not in the table")
	t.Logf("%d flights, %d views", len(flights), views)
}

// features returns the properties of a flight that decide may depend on, computed independently of decide.
func features(e *explored, differs bool) string {
	f, text := e.flight, "same"
	if differs {
		text = "differs"
	}
	if f == nil {
		return text + " nil"
	}
	who := func(n flight.Nonce) string {
		return map[flight.Nonce]string{{}: "none", ownNonce: "own", otherNonce: "other"}[n]
	}
	text += " " + f.State.String()
	if a := f.Newest(); a != nil {
		deadline := f.Deadline(&e.header)
		text += fmt.Sprint(" attempt ", who(a.Nonce), a.IsOpen(), deadline > 0, e.header.Now >= deadline, a.Session.Epoch < e.header.LeaseEpoch)
	}
	for _, a := range f.Attempts {
		text += fmt.Sprint(" ", a.Nonce == ownNonce)
	}
	if p := f.Verification; p != nil {
		text += fmt.Sprint(" probe ", who(p.Nonce), p.Session.ID != "", e.header.Now >= f.HolderTime(&e.header, p.NotBefore), e.header.Now >= f.HolderTime(&e.header, p.Until))
	}
	if f.Wake != nil {
		text += fmt.Sprint(" wake ", f.Wake.At > 0, e.header.Now >= f.Wake.At, f.OpenAttempt() != nil)
	}
	for _, u := range f.UsedNonces {
		text += fmt.Sprint(" used ", who(u.Nonce))
	}
	return text + fmt.Sprint(" ", e.header.Now >= f.NotBefore, e.header.Now >= e.header.EpochHold)
}

// eachView visits every combination of the fields of a view that are not from the ledger.
func eachView(v view, visit func(*view)) {
	for v.reply = flight.DecisionNone; v.reply <= flight.DecisionReconciling; v.reply++ {
		for _, v.session = range []etcdState{etcdUnknown, etcdConfirmed, etcdLost, etcdUnavailable} {
			for v.claim = etcdUnknown; v.claim <= etcdUnavailable; v.claim++ {
				for flags := range 1 << 6 {
					v.proposed, v.tooManyOpen, v.callerWaits = flags&1 != 0, flags&2 != 0, flags&4 != 0
					v.nodeStops, v.isStep = flags&8 != 0, flags&16 != 0
					v.lookUpDelay = time.Duration(flags>>5) * time.Second
					v.busyFor = v.lookUpDelay
					visit(&v)
				}
			}
		}
	}
}

// facts are a flight's properties for the caller of the view, computed independently of decide.
type facts struct {
	own, looks, lookHeld, ended, used, inDoubt, unapproved, mayOpen bool
	holder                                                          *flight.Session
}

func factsOf(v *view) (k facts) {
	f := v.flight
	a := f.OpenAttempt()
	k.own = a != nil && f.State == flight.StateRunning && a.Nonce == ownNonce
	k.looks = f.Verifying() && f.Verification.Nonce == ownNonce
	k.lookHeld = k.looks && f.Verification.Session.ID != ""
	k.holder = f.Holder()
	k.mayOpen = mayOpen(v)
	if f == nil {
		return k
	}
	k.ended = f.State.Terminal() || f.State != flight.StateAbsent && !f.Fingerprint.Matches(v.submission.Fingerprint)
	k.inDoubt, k.unapproved = f.State == flight.StateInDoubt, f.State == flight.StateAwaitingApproval
	for _, at := range f.Attempts {
		k.used = k.used || at.Nonce == ownNonce
	}
	for _, u := range f.UsedNonces {
		k.used = k.used || u.Nonce == ownNonce
	}
	return k
}

// allowed reports whether an action is safe in this view.
func (f *facts) allowed(v *view, a action) bool {
	granted := f.own || f.looks
	switch a {
	case actionAnswerFlight:
		return f.ended || f.unapproved || f.inDoubt && (f.used || !v.proposed)
	case actionProceed:
		return f.own && v.session == etcdConfirmed && v.claim == etcdConfirmed
	case actionVerify:
		return f.lookHeld && v.session == etcdConfirmed && v.lookUpDelay == 0
	case actionBusy:
		return !v.callerWaits && !f.own && !f.ended
	case actionFenced:
		return !granted && (f.used || v.reply == flight.DecisionFenced)
	case actionOpenExpired: // only after a reply of the ledger
		return !granted && v.reply == flight.DecisionOpenExpired
	case actionTooManyOpen:
		return !granted && (v.tooManyOpen || v.reply == flight.DecisionExhausted)
	case actionLeaseLost:
		return granted && v.session == etcdLost || f.own && v.claim == etcdLost || f.looks && !f.lookHeld || v.reply == flight.DecisionSessionEnded
	case actionLeaseUnavailable:
		return granted && (v.session == etcdUnavailable || v.claim == etcdUnavailable)
	case actionDraining:
		return !f.own && v.nodeStops
	case actionReconciling:
		return !f.ended && (v.header.Reconciling || v.reply == flight.DecisionReconciling)
	case actionWait:
		return !f.own && !f.ended && v.callerWaits && !v.nodeStops
	case actionOpen:
		return !granted && !f.used && !f.ended && !v.nodeStops && !v.tooManyOpen && v.reply == flight.DecisionNone && f.mayOpen && !v.header.Reconciling
	case actionRenewSession:
		return granted && v.session == etcdUnknown
	case actionFinishClaim:
		return f.own && v.session == etcdConfirmed && v.claim == etcdUnknown
	case actionReplaceClaim:
		return f.own && v.session == etcdConfirmed && v.claim == etcdForeign
	}
	return false
}

// unsafe describes why a decision is unsafe. It returns "" for a safe one.
func (f *facts) unsafe(v *view, d *nextStep) string {
	switch {
	case !f.allowed(v, d.action):
		return "not allowed here"
	case d.check != nil && (f.holder == nil || *d.check != *f.holder):
		return "it has a session checked that holds nothing"
	case d.action == actionBusy && f.holder != nil && d.check == nil && !f.looks:
		return "the session that blocks the open is not checked"
	case d.pause < 0:
		return "it waits for the past"
	}
	return ""
}

// mayOpen reports whether no lasting state blocks an Open.
func mayOpen(v *view) bool {
	f := v.flight
	a := f.OpenAttempt()
	if a == nil {
		return f == nil || f.State != flight.StateWaiting
	}
	deadline := f.Deadline(&v.header)
	overdue := deadline > 0 && v.now >= deadline
	return overdue || a.Session.Epoch < v.header.LeaseEpoch && v.now >= v.header.EpochHold
}

// A nonce is not abandoned if its caller can repeat the open, and a session is not withdrawn while its caller acts
// under it.
func TestCleanup(t *testing.T) {
	const own = "ses_own"
	cases := 0
	for bits := range 1 << 6 {
		has := func(i int) bool { return bits&(1<<i) != 0 }
		e := callEnd{mayAct: has(0), noNonce: has(1), openUnknown: has(2)}
		if has(3) {
			e.oneShot = own
		}
		v := view{nonce: ownNonce}
		if has(4) {
			holder := flight.Session{ID: "ses_other"}
			if has(5) {
				holder.ID = own
			}
			v.flight = &flight.Flight{State: flight.StateRunning, Attempts: []flight.Attempt{{Nonce: ownNonce, Session: holder}}}
		}
		cases++
		abandon, withdraw := v.cleanup(&e)
		require.Equal(t, e.noNonce && !e.mayAct && (e.openUnknown || has(4)), abandon, "%+v", e)
		require.False(t, withdraw && !has(3), "%+v: the session is not this call's", e)
		require.False(t, withdraw && has(4) && has(5) && !abandon, "%+v: the caller acts under the session, or repeats the open", e)
		require.True(t, withdraw || !has(3) || has(4) && has(5), "%+v: the session is never ended", e)
	}
	t.Logf("%d ends of a call", cases)
}
