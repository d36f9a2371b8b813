package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// step creates a command from the ledger's present state.
type say func(w *world) flight.Command

// script applies commands to one key; flighttest checks every step.
type play struct {
	t      *testing.T
	w      *world
	policy flight.Policy
	last   flight.Reply
}

func newPlay(t *testing.T, p flight.Policy) *play {
	if p.SettleDelay == 0 {
		p.SettleDelay = settle
	}
	if p.Retention == 0 {
		p.Retention = retains
	}
	return &play{t: t, w: newWorld(soloKey), policy: p}
}

func (p *play) do(lines ...say) *play {
	p.t.Helper()
	for _, line := range lines {
		c := line(p.w)
		if o, ok := c.(*flight.Open); ok && o.Submission.Policy == (flight.Policy{}) {
			o.Submission.Policy = p.policy
		}
		if s, ok := c.(*flight.Submit); ok && s.Submission.Policy == (flight.Policy{}) {
			s.Submission.Policy = p.policy
		}
		next, reply, err := p.w.step(c)
		require.NoError(p.t, err, describe(c))
		p.w, p.last = next, reply
	}
	return p
}

func (p *play) flight() *flight.Flight { return p.w.flights[0] }

// expect checks the answer to the last command and the flight's state.
func (p *play) expect(d flight.Decision, s flight.State) *play {
	p.t.Helper()
	state := flight.Absent
	if f := p.flight(); f != nil {
		state = f.State
	}
	require.Equal(p.t, d.String(), p.last.Decision.String(), "the answer; the flight is %v", state)
	require.Equal(p.t, s.String(), state.String(), "the flight's state")
	return p
}

func (p *play) check(ok bool, complaint string) *play {
	p.t.Helper()
	require.True(p.t, ok, "%s: %+v", complaint, p.flight())
	return p
}

// open returns an Open under one of the three sessions, 1 to 3.
func open(session int, n flight.Nonce) say {
	return openAs(func(*flight.Open) {}, session, n)
}

func openAs(change func(*flight.Open), session int, n flight.Nonce) say {
	return func(w *world) flight.Command {
		c := openOf(soloKey, flight.Policy{}, sessions[session-1], n, fp1)
		change(c)
		return c
	}
}

// endSession proves that one of the three sessions has ended.
func ended(session int) say {
	return func(*world) flight.Command { return endedOf(sessions[session-1]) }
}

func endedAs(change func(*flight.Ended), session int) say {
	return func(*world) flight.Command {
		c := endedOf(sessions[session-1])
		change(c)
		return c
	}
}

func withdraw(session int) say {
	return func(*world) flight.Command {
		return &flight.Withdraw{Key: soloKey, Session: sessions[session-1].ID, StoreEpoch: 1}
	}
}

// report returns a report of the n-th attempt that the ledger opened.
func report(n int, o flight.Outcome, id string) say {
	return func(w *world) flight.Command { return reportOf(soloKey, w.issued[0][n-1], o, id) }
}

func abandon(n flight.Nonce) say {
	return abandonAs(func(*flight.Abandon) {}, n)
}

func abandonAs(change func(*flight.Abandon), n flight.Nonce) say {
	return func(*world) flight.Command {
		c := abandonOf(soloKey, n)
		change(c)
		return c
	}
}

// finding answers the due look-up, or the look-up that is `before` numbers earlier.
func verdict(v flight.Verb, before uint32) say {
	return func(w *world) flight.Command {
		f := w.flights[0]
		return &flight.Verdict{Key: soloKey, Generation: f.Generation, Probe: f.Probes - before, Result: v, ExternalID: "x", Body: bodies["x"]}
	}
}

func resolve(v flight.Verb) say {
	return func(w *world) flight.Command {
		f := w.flights[0]
		return &flight.Resolve{Key: soloKey, Generation: f.Generation, Version: f.Version, Verb: v, ExternalID: "x", Body: bodies["x"], Who: "ann", Why: "asked them"}
	}
}

func decide(v flight.Verb) say {
	return func(w *world) flight.Command {
		f := w.flights[0]
		return &flight.Decide{Key: soloKey, Generation: f.Generation, Fingerprint: f.Fingerprint, Version: f.Version, Verb: v, Who: "ann"}
	}
}

// atGeneration creates a command from the present generation.
func now(make func(generation uint32) flight.Command) say {
	return func(w *world) flight.Command {
		if f := w.flights[0]; f != nil {
			return make(f.Generation)
		}
		return make(1)
	}
}

var (
	submit = say(func(*world) flight.Command {
		return &flight.Submit{Key: soloKey, Submission: flight.Submission{Fingerprint: fp1}}
	})
	cancel = now(func(g uint32) flight.Command {
		return &flight.Cancel{Key: soloKey, Generation: g, Who: "ann", Why: "enough"}
	})
	retry  = now(func(g uint32) flight.Command { return &flight.Retry{Key: soloKey, Generation: g, Who: "ann"} })
	free   = now(func(g uint32) flight.Command { return &flight.Free{Key: soloKey, Generation: g, Who: "ann"} })
	expire = now(func(g uint32) flight.Command { return &flight.Expire{Key: soloKey, Generation: g} })
	wakeUp = now(func(g uint32) flight.Command { return &flight.WakeUp{Key: soloKey, Generation: g} })
	seal   = now(func(uint32) flight.Command { return &flight.Seal{Key: soloKey} })
)

// suspend puts the n-th attempt to sleep, or lets it wait for its callback.
func suspend(n int, wake flight.Wake) say {
	return func(w *world) flight.Command {
		at := w.issued[0][n-1]
		return &flight.Suspend{Key: soloKey, Generation: at.generation, Token: at.token, Wake: wake}
	}
}

func after(d time.Duration) say { return func(*world) flight.Command { return &tick{by: d} } }

// wallAhead sets the leader's wall clock ahead of the ledger's time.
func wallAhead(d time.Duration) say { return func(*world) flight.Command { return &tick{ahead: d} } }

// verifyAs proposes an Open for a due look-up, under the third session and the given nonce.
func look(nonce byte) say {
	return func(w *world) flight.Command {
		o := openOf(soloKey, flight.Policy{}, sessions[2], flight.Nonce{nonce}, fp1)
		o.NotAfter = w.header.Now.Add(window)
		return o
	}
}

// lostReport returns a report of an attempt that this ledger has lost by a restore.
func lostReport(generation, number uint32, o flight.Outcome) say {
	id := map[flight.Outcome]string{flight.Succeeded: "y"}[o]
	return func(*world) flight.Command {
		return reportOf(soloKey, attemptRef{generation: generation, token: flight.Token{StoreEpoch: 1, Number: number}}, o, id)
	}
}
