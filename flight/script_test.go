package flight_test

import (
	"testing"
	"time"

	"github.com/flightd/flightd/flight"
)

// say makes a command for the world as it stands when its turn comes.
type say func(w *world) flight.Command

// play lets scripts of commands happen to one key, every step judged by flighttest.
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
		if err != nil {
			p.t.Fatalf("%s: %v", describe(c), err)
		}
		p.w, p.last = next, reply
	}
	return p
}

func (p *play) flight() *flight.Flight { return p.w.flights[0] }

// expect says what the last command was answered, and where the flight stands now.
func (p *play) expect(d flight.Decision, s flight.State) *play {
	p.t.Helper()
	state := flight.Absent
	if f := p.flight(); f != nil {
		state = f.State
	}
	if p.last.Decision != d || state != s {
		p.t.Fatalf("answered %v and left the flight %v; want %v and %v", p.last.Decision, state, d, s)
	}
	return p
}

func (p *play) check(ok bool, complaint string) *play {
	p.t.Helper()
	if !ok {
		p.t.Fatalf("%s: %+v", complaint, p.flight())
	}
	return p
}

// open is an Open with one of the three claims, 1 to 3.
func open(claim int, n flight.Nonce) say {
	return func(w *world) flight.Command { return openOf(soloKey, flight.Policy{}, claims[claim-1], n, fp1) }
}

func openAs(change func(*flight.Open), claim int, n flight.Nonce) say {
	return func(w *world) flight.Command {
		c := openOf(soloKey, flight.Policy{}, claims[claim-1], n, fp1)
		change(c)
		return c
	}
}

// repeat asks again for what an Open has opened.
func repeat(claim int, n flight.Nonce) say {
	return openAs(func(o *flight.Open) { o.Repeat = true }, claim, n)
}

// byCaller lets an Abandon come from the attempt's caller itself.
func byCaller(abandon say) say {
	return func(w *world) flight.Command {
		c := abandon(w).(*flight.Abandon)
		c.ByCaller = true
		return c
	}
}

// report is a report of the n-th attempt that the ledger ever opened.
func report(n int, o flight.Outcome, id string) say {
	return func(w *world) flight.Command { return reportOf(soloKey, w.issued[0][n-1], o, id) }
}

func abandon(n int) say {
	return func(w *world) flight.Command {
		at := w.issued[0][n-1]
		return &flight.Abandon{Key: soloKey, Generation: at.generation, Token: at.token}
	}
}

func abandonNonce(s flight.SessionID, n flight.Nonce) say {
	return func(*world) flight.Command {
		return &flight.Abandon{Key: soloKey, Session: s, Nonce: n, NotAfter: notAfter[n]}
	}
}

// abandonOpen abandons what an Open with one of the three claims may have opened.
func abandonOpen(claim int, n flight.Nonce) say {
	return func(*world) flight.Command {
		c := claims[claim-1]
		return &flight.Abandon{Key: soloKey, Session: c.Session, Claim: c, Nonce: n, NotAfter: notAfter[n]}
	}
}

func recoverBy(claim int) say {
	return func(*world) flight.Command { return &flight.Recover{Key: soloKey, Claim: claims[claim-1]} }
}

// verdict answers the probe that the flight waits for, or the one that many before it.
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

// now gives a command that needs nothing but the present generation.
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

// suspend puts the n-th attempt to sleep, or hands it to a callback.
func suspend(n int, wake flight.Wake) say {
	return func(w *world) flight.Command {
		at := w.issued[0][n-1]
		return &flight.Suspend{Key: soloKey, Generation: at.generation, Token: at.token, Wake: wake}
	}
}

func after(d time.Duration) say { return func(*world) flight.Command { return &tick{by: d} } }
