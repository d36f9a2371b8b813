package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// step creates a command from the ledger's present state.
type step func(w *ledger) flight.Command

// script applies commands to one key; flighttest checks every step.
type script struct {
	t      *testing.T
	ledger *ledger
	policy flight.Policy
	last   flight.Reply
}

func newScript(t *testing.T, p flight.Policy) *script {
	if p.SettleDelay == 0 {
		p.SettleDelay = settleDelay
	}
	if p.Retention == 0 {
		p.Retention = retention
	}
	return &script{t: t, ledger: newLedger(soloKey), policy: p}
}

func (sc *script) run(lines ...step) *script {
	sc.t.Helper()
	for _, line := range lines {
		c := line(sc.ledger)
		if o, ok := c.(*flight.Open); ok && o.Submission.Policy == (flight.Policy{}) {
			o.Submission.Policy = sc.policy
		}
		if s, ok := c.(*flight.Submit); ok && s.Submission.Policy == (flight.Policy{}) {
			s.Submission.Policy = sc.policy
		}
		next, reply, err := sc.ledger.apply(c)
		require.NoError(sc.t, err, describe(c))
		sc.ledger, sc.last = next, reply
	}
	return sc
}

func (sc *script) flight() *flight.Flight { return sc.ledger.flights[0] }

// expect checks the answer to the last command and the flight's state.
func (sc *script) expect(d flight.Decision, s flight.State) *script {
	sc.t.Helper()
	state := flight.StateAbsent
	if f := sc.flight(); f != nil {
		state = f.State
	}
	require.Equal(sc.t, d.String(), sc.last.Decision.String(), "the answer; the flight is %v", state)
	require.Equal(sc.t, s.String(), state.String(), "the flight's state")
	return sc
}

func (sc *script) check(ok bool, complaint string) *script {
	sc.t.Helper()
	require.True(sc.t, ok, "%s: %+v", complaint, sc.flight())
	return sc
}

// open returns an Open under one of the three sessions, 1 to 3.
func open(session int, n flight.Nonce) step {
	return openAs(func(*flight.Open) {}, session, n)
}

func openAs(change func(*flight.Open), session int, n flight.Nonce) step {
	return func(w *ledger) flight.Command {
		c := openOf(soloKey, flight.Policy{}, sessions[session-1], n, fp1)
		change(c)
		return c
	}
}

// endSession proves that one of the three sessions has ended.
func endSession(session int) step {
	return func(*ledger) flight.Command { return endSessionOf(sessions[session-1]) }
}

func endSessionAs(change func(*flight.EndSession), session int) step {
	return func(*ledger) flight.Command {
		c := endSessionOf(sessions[session-1])
		change(c)
		return c
	}
}

func withdrawSession(session int) step {
	return func(*ledger) flight.Command {
		return &flight.WithdrawSession{Key: soloKey, Session: sessions[session-1].ID, StoreEpoch: 1}
	}
}

// report returns a report of the n-th attempt that the ledger opened.
func report(n int, o flight.Outcome, id string) step {
	return func(w *ledger) flight.Command { return reportOf(soloKey, w.openedAttempts[0][n-1], o, id) }
}

func abandon(n flight.Nonce) step {
	return abandonAs(func(*flight.Abandon) {}, n)
}

func abandonAs(change func(*flight.Abandon), n flight.Nonce) step {
	return func(*ledger) flight.Command {
		c := abandonOf(soloKey, n)
		change(c)
		return c
	}
}

// finding answers the due look-up, or the look-up that is `before` numbers earlier.
func finding(v flight.Finding, before uint32) step {
	return func(w *ledger) flight.Command {
		f := w.flights[0]
		return &flight.ReportFinding{Key: soloKey, Generation: f.Generation, Verification: f.Verifications - before, Finding: v, ExternalID: "x", Body: bodies["x"]}
	}
}

func resolve(v flight.Finding) step {
	return func(w *ledger) flight.Command {
		f := w.flights[0]
		return &flight.Resolve{Key: soloKey, Generation: f.Generation, Version: f.Version, Finding: v, ExternalID: "x", Body: bodies["x"], Actor: "ann", Reason: "asked them"}
	}
}

func decide(v flight.Finding) step {
	return func(w *ledger) flight.Command {
		f := w.flights[0]
		return &flight.DecideApproval{Key: soloKey, Generation: f.Generation, Fingerprint: f.Fingerprint, Version: f.Version, Finding: v, Actor: "ann"}
	}
}

// atGeneration creates a command from the present generation.
func atGeneration(make func(generation uint32) flight.Command) step {
	return func(w *ledger) flight.Command {
		if f := w.flights[0]; f != nil {
			return make(f.Generation)
		}
		return make(1)
	}
}

var (
	submit = step(func(*ledger) flight.Command {
		return &flight.Submit{Key: soloKey, Submission: flight.Submission{Fingerprint: fp1}}
	})
	cancel = atGeneration(func(g uint32) flight.Command {
		return &flight.Cancel{Key: soloKey, Generation: g, Actor: "ann", Reason: "enough"}
	})
	retry  = atGeneration(func(g uint32) flight.Command { return &flight.Retry{Key: soloKey, Generation: g, Actor: "ann"} })
	free   = atGeneration(func(g uint32) flight.Command { return &flight.FreeKey{Key: soloKey, Generation: g, Actor: "ann"} })
	expire = atGeneration(func(g uint32) flight.Command { return &flight.Expire{Key: soloKey, Generation: g} })
	wakeUp = atGeneration(func(g uint32) flight.Command { return &flight.WakeUp{Key: soloKey, Generation: g} })
	seal   = atGeneration(func(uint32) flight.Command { return &flight.SealKey{Key: soloKey} })
)

// drive returns the Open of a driver, which has no session.
func drive(n flight.Nonce) step {
	return openAs(func(o *flight.Open) { o.Session = flight.Session{} }, 1, n)
}

// suspend puts the n-th attempt to sleep, or lets it wait for its callback.
func suspend(n int, wake flight.Wake) step {
	return func(w *ledger) flight.Command {
		at := w.openedAttempts[0][n-1]
		return &flight.Suspend{Key: soloKey, Generation: at.generation, Token: at.token, Wake: wake}
	}
}

func afterTime(d time.Duration) step { return func(*ledger) flight.Command { return &tick{by: d} } }

// wallAhead sets the leader's wall clock ahead of the ledger's time.
func wallAhead(d time.Duration) step { return func(*ledger) flight.Command { return &tick{ahead: d} } }

// verifyAs proposes an Open for a due look-up, under the third session and the given nonce.
func verifyAs(nonce byte) step {
	return func(w *ledger) flight.Command {
		o := openOf(soloKey, flight.Policy{}, sessions[2], flight.Nonce{nonce}, fp1)
		o.NotAfter = w.header.Now.Add(providerWindow)
		return o
	}
}

// lostReport returns a report of an attempt that this ledger has lost by a restore.
func lostReport(generation, number uint32, o flight.Outcome) step {
	id := map[flight.Outcome]string{flight.OutcomeSucceeded: "y"}[o]
	return func(*ledger) flight.Command {
		return reportOf(soloKey, attemptRef{generation: generation, token: flight.Token{StoreEpoch: 1, Number: number}}, o, id)
	}
}
