package flight_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// claimWorld has two jobs in a ledger and two workers, each with a session, that claim one job at a time. Each claim request is
// delivered up to twice, at any time until not_after, also across a change of leader; each answer may be lost. Commands are applied
// by the rules.
type claimWorld struct {
	header  flight.Header
	jobs    [2]*flight.Flight
	effects [2]int // of each job: begun, and not reported as not done
	workers [2]claimWorker
	changes int  // of the leader
	late    bool // not_after has passed: no copy opens anything
}

type claimWorker struct {
	dead    bool
	claims  [2]claimState
	known   [2]int  // of each job that it holds: its claim, from 1
	begun   [2]bool // of each job that it holds: its effect has begun
	listing *[2]int // a renewal's answer on its way: the open attempts under the session, by their claims
}

type claimState struct {
	sent, ended bool
	copies      int     // delivered
	answers     [3]bool // on their way: no job, the first, the second
	handed      [2]bool // by the answer that the worker has taken
	answered    bool    // in the leader's memory: a copy hands out nothing new
}

// claimRule is a definition of what a repeat gets, and of what a worker abandons.
type claimRule struct {
	name string
	// freshNonces: each delivery opens under nonces of its own.
	freshNonces bool
	// abandonsAwaited: a worker abandons each listed attempt that it does not know, also while its claim is not answered.
	abandonsAwaited bool
	// keepsUnknown: a worker reports a listed attempt that it does not know as unknown, as it does with an attempt of a call.
	keepsUnknown bool
	// takesOthers: a repeat under another session gets the attempts of the claim, too.
	takesOthers bool
	violates    string
}

func claimRules() []claimRule {
	return []claimRule{
		{name: "nonces of the claim, and what nobody was handed is abandoned"},
		{name: "each delivery draws its nonces", freshNonces: true, violates: "doubt without an effect"},
		{name: "an attempt is abandoned while its claim is not answered", abandonsAwaited: true, violates: "acts without an attempt"},
		{name: "an unknown attempt is reported as unknown", keepsUnknown: true, violates: "doubt without an effect"},
		{name: "a repeat under another session gets the same jobs", takesOthers: true, violates: "acts without an attempt"},
	}
}

func claimNonce(worker, claim, copied int) flight.Nonce {
	return flight.Nonce{1 + byte(worker), byte(claim), byte(copied)}
}

func claimSession(worker int) flight.Session {
	return flight.Session{ID: flight.SessionID(fmt.Sprint("s", worker)), Revision: 7, Epoch: 1}
}

// apply applies a command to a job.
func (w *claimWorld) apply(job int, c flight.Command) flight.Reply {
	w.header.Version.Index++
	after, reply := flight.Apply(flight.View{Header: w.header, Flight: w.jobs[job]}, c)
	w.header, w.jobs[job] = after.Header, after.Flight
	return reply
}

// openOf returns the worker and the claim (from 1) of a job's open attempt.
func (w *claimWorld) openOf(job int) (worker, claim int, ok bool) {
	a := w.jobs[job].OpenAttempt()
	if a == nil {
		return 0, 0, false
	}
	return int(a.Nonce[0]) - 1, int(a.Nonce[1]), true
}

func claimKey(job int) flight.Key { return flight.MustKey(fmt.Sprintf("test/charge/order-%d", job)) }

// deliver is what the leader does with a copy of a claim: the attempts that the claim has opened, or one more job. It returns the
// job of the answer from 1, or 0.
func (w *claimWorld) deliver(rule *claimRule, worker, claim int) int {
	c := &w.workers[worker].claims[claim-1]
	c.copies++
	for job := range w.jobs {
		by, of, ok := w.openOf(job)
		if ok && !rule.freshNonces && of == claim && (by == worker || rule.takesOthers) {
			return 1 + job
		}
	}
	if c.answered || w.late {
		return 0
	}
	c.answered = true
	for job, f := range w.jobs {
		if f.State != flight.StateReady {
			continue
		}
		copied := 0
		if rule.freshNonces {
			copied = c.copies
		}
		open := &flight.Open{Key: claimKey(job), Session: claimSession(worker), Nonce: claimNonce(worker, claim, copied), NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch}
		if w.apply(job, open).Decision == flight.DecisionProceed {
			return 1 + job
		}
	}
	return 0
}

// successors returns the states that one step leads to, by name.
func (w *claimWorld) successors(rule *claimRule) map[string]*claimWorld {
	all := make(map[string]*claimWorld)
	step := func(name string, change func(n *claimWorld)) {
		next := *w
		change(&next)
		all[name] = &next
	}
	if !w.late {
		step("not_after passes", func(n *claimWorld) { n.late = true })
	}
	if w.changes == 0 {
		step("another node leads", func(n *claimWorld) {
			n.changes++
			for i := range n.workers {
				for k := range n.workers[i].claims {
					n.workers[i].claims[k].answered = false
				}
			}
		})
	}
	for i := range w.workers {
		me := &w.workers[i]
		for k := range me.claims {
			claim, c := k+1, me.claims[k]
			name := fmt.Sprintf("worker %d, claim %d: ", i, claim)
			if !me.dead && !c.sent && (k == 0 || i == 0 && me.claims[k-1].ended && !testing.Short()) {
				step(name+"sent", func(n *claimWorld) { n.workers[i].claims[k].sent = true })
			}
			if c.sent && c.copies < max(1, 2-i-k) {
				step(name+"delivered", func(n *claimWorld) {
					job := n.deliver(rule, i, claim)
					n.workers[i].claims[k].answers[job] = true
				})
			}
			if me.dead || !c.sent || c.ended {
				continue
			}
			step(name+"given up", func(n *claimWorld) { n.workers[i].claims[k].ended = true })
			for a, comes := range c.answers {
				if !comes {
					continue
				}
				step(fmt.Sprintf("%sanswered %d", name, a), func(n *claimWorld) {
					c := &n.workers[i].claims[k]
					if c.ended = true; a > 0 {
						c.handed[a-1] = true
						n.workers[i].known[a-1] = claim
					}
				})
			}
		}
		if me.dead {
			for job := range w.jobs {
				if by, _, ok := w.openOf(job); ok && by == i {
					step(fmt.Sprintf("session of worker %d ends for job %d", i, job), func(n *claimWorld) {
						x := claimSession(i)
						n.apply(job, &flight.EndSession{Session: x, ReadRevision: 100, Epoch: 1, StoreEpoch: n.header.StoreEpoch})
					})
				}
			}
			continue
		}
		if i == 0 {
			step(fmt.Sprintf("worker %d dies", i), func(n *claimWorld) { n.workers[i].dead = true })
		}
		switch {
		case i == 1: // read at once: the other worker's may be late
			step("worker 1: lists and reads", func(n *claimWorld) { n.list(1); n.readList(rule, 1) })
		case me.listing == nil:
			step(fmt.Sprintf("worker %d: listed", i), func(n *claimWorld) {
				n.list(i)
			})
		default:
			step(fmt.Sprintf("worker %d: reads the list", i), func(n *claimWorld) { n.readList(rule, i) })
		}
		for job := range w.jobs {
			if me.known[job] == 0 {
				continue
			}
			name := fmt.Sprintf("worker %d, job %d: ", i, job)
			if !me.begun[job] {
				step(name+"begins", func(n *claimWorld) { n.workers[i].begun[job] = true; n.effects[job]++ })
				continue
			}
			for _, o := range []flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeNotDone} {
				step(name+o.String(), func(n *claimWorld) {
					if a := n.jobs[job].OpenAttempt(); a != nil {
						n.apply(job, &flight.Report{Key: claimKey(job), Generation: n.jobs[job].Generation, Token: n.header.TokenOf(a), Outcome: o})
					}
					if o == flight.OutcomeNotDone {
						n.effects[job]--
					}
					n.workers[i].known[job], n.workers[i].begun[job] = 0, false
				})
			}
		}
	}
	return all
}

// list is a renewal's answer: the attempts that are open under the worker's session.
func (w *claimWorld) list(worker int) {
	var open [2]int
	for job := range w.jobs {
		if by, of, ok := w.openOf(job); ok && by == worker {
			open[job] = of
		}
	}
	w.workers[worker].listing = &open
}

// readList is what a worker does with the attempts that a renewal lists.
func (w *claimWorld) readList(rule *claimRule, worker int) {
	me := &w.workers[worker]
	open := *me.listing
	me.listing = nil
	for job, claim := range open {
		if claim == 0 || me.known[job] == claim || me.claims[claim-1].handed[job] {
			continue
		}
		a := w.jobs[job].OpenAttempt()
		switch awaited := !me.claims[claim-1].ended; {
		case awaited && !rule.abandonsAwaited:
		case rule.keepsUnknown || rule.freshNonces: // a nonce that is not the claim's tells nothing
			if a != nil {
				w.apply(job, &flight.Report{Key: claimKey(job), Generation: w.jobs[job].Generation, Token: w.header.TokenOf(a), Outcome: flight.OutcomeUnknown})
			}
		default:
			w.apply(job, &flight.Abandon{Key: claimKey(job), Nonce: claimNonce(worker, claim, 0), NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch})
		}
	}
}

// violation names the property that a state breaks.
func (w *claimWorld) violation() string {
	for job, f := range w.jobs {
		if w.effects[job] > 1 {
			return "two effects"
		}
		died := w.workers[0].dead
		if f.State == flight.StateInDoubt && w.effects[job] == 0 && !died {
			return "doubt without an effect"
		}
		for i := range w.workers {
			me := &w.workers[i]
			by, of, ok := w.openOf(job)
			if !me.dead && me.begun[job] && (!ok || by != i || of != me.known[job]) {
				return "acts without an attempt"
			}
		}
	}
	return ""
}

// forgotten reports whether an attempt is open that its living worker does not know, will not get to know, and will not abandon.
func (w *claimWorld) forgotten(rule *claimRule) bool {
	next := *w
	for i := range next.workers {
		me := &next.workers[i]
		for k := range me.claims {
			if me.dead || me.claims[k].sent && !me.claims[k].ended {
				return false
			}
		}
		next.list(i)
		next.readList(rule, i)
		for job := range next.jobs {
			if by, of, ok := next.openOf(job); ok && by == i && me.known[job] != of {
				return true
			}
		}
	}
	return false
}

func (w *claimWorld) abstract() string {
	var b strings.Builder
	for job, f := range w.jobs {
		worker, claim, open := w.openOf(job)
		fmt.Fprint(&b, f.State, open, worker, claim, f.CountedAttempts, w.effects[job], len(f.UsedNonces), ";")
	}
	for i := range w.workers {
		me := &w.workers[i]
		fmt.Fprint(&b, me.dead, me.claims, me.known, me.begun)
		if me.listing != nil {
			fmt.Fprint(&b, *me.listing)
		}
	}
	fmt.Fprint(&b, w.changes, w.late)
	return b.String()
}

// TestClaims_Explored reaches every state of two workers that claim two jobs, and checks each: no effect happens twice or without
// its attempt, no doubt comes from a job that nobody began, and no open attempt is forgotten. The other definitions are why it is
// defined so.
func TestClaims_Explored(t *testing.T) {
	for _, rule := range claimRules() {
		t.Run(rule.name, func(t *testing.T) {
			type visited struct {
				world *claimWorld
				from  int
				by    string
			}
			first := &claimWorld{header: testHeader}
			first.header.Version = flight.Version{Index: 1}
			for job := range first.jobs {
				first.apply(job, &flight.Submit{Key: claimKey(job), Queue: &flight.Queue{}, Submission: flight.Submission{Policy: flight.Policy{Retry: flight.RetryPolicy{Attempts: 1}}}})
			}
			found, list := map[string]bool{first.abstract(): true}, []visited{{world: first}}
			for n := 0; n < len(list); n++ {
				w := list[n].world
				broken := w.violation()
				if broken == "" && w.forgotten(&rule) {
					broken = "forgotten"
				}
				if broken != "" {
					var trace []string
					for k := n; k > 0; k = list[k].from {
						trace = append([]string{list[k].by}, trace...)
					}
					require.Equal(t, rule.violates, broken, strings.Join(trace, ", "))
					t.Logf("%s after %s (%d states)", broken, strings.Join(trace, ", "), len(list))
					return
				}
				for by, world := range w.successors(&rule) {
					if key := world.abstract(); !found[key] {
						found[key] = true
						list = append(list, visited{world, n, by})
					}
				}
				require.Less(t, len(list), 600_000, "the states have no end")
			}
			require.Empty(t, rule.violates, "the definition holds in %d states", len(list))
			t.Logf("holds in %d states", len(list))
		})
	}
}
