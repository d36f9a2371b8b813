package flight_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

const approvalTime = 2 * time.Second

// approvalWorld has one flight that needs an approval, a caller that asks for it again and again, and persons who decide about
// what they saw, perhaps long ago.
type approvalWorld struct {
	header   flight.Header
	flight   *flight.Flight
	seen     []sight // when the flight awaited an approval
	approved uint32  // the last generation that a person approved, in time and by what they saw
}

// sight is what a person saw of a flight that awaited approval.
type sight struct {
	version    flight.Version
	generation uint32
	decided    flight.Finding // what became of it; FindingNone: it still waits
	by         string
}

// approvalRule is a definition of approvals.
type approvalRule struct {
	name     string
	retried  func(f *flight.Flight)                                // changes the flight after an accepted retry
	change   func(w *approvalWorld, c *flight.DecideApproval)      // changes the command of a person
	until    func(w *approvalWorld, h flight.Header) flight.Header // changes the time at which a decision is judged
	violates string                                                // the property that the definition breaks; "": none
}

func approvalRules() []approvalRule {
	return []approvalRule{
		{name: "as the ledger has it"},
		{name: "a retry needs no approval", retried: func(f *flight.Flight) { f.State = flight.StateReady }, violates: "acted without an approval"},
		{name: "an approval names no version", change: func(w *approvalWorld, c *flight.DecideApproval) {
			if w.flight.State == flight.StateAwaitingApproval {
				c.Generation, c.Version = w.flight.Generation, w.flight.Version
			}
		}, violates: "approved what nobody saw"},
		{name: "the clock of the person counts", until: func(_ *approvalWorld, h flight.Header) flight.Header { h.Now = start; return h }, violates: "approved too late"},
	}
}

func (w *approvalWorld) abstract() string {
	f := w.flight
	if f == nil {
		return fmt.Sprint(w.header.Now)
	}
	text := fmt.Sprint(w.header.Now, f.State, f.Generation, f.Cancel != nil, f.TaintingAttempts, f.CreatedAt, w.approved)
	for _, s := range w.seen {
		text += fmt.Sprint(s.generation, s.decided, s.by, s.version == f.Version)
	}
	if a := f.Newest(); a != nil {
		text += fmt.Sprint(a.IsOpen(), a.ReportedOutcomes)
	}
	return text
}

// apply applies a command to a copy of the world, and names the property that it breaks.
func (w *approvalWorld) apply(c flight.Command, header flight.Header) (next *approvalWorld, reply flight.Reply, broken string) {
	copied := *w
	next = &copied
	next.seen = slices.Clone(w.seen)
	header.Version = flight.Version{Index: w.header.Version.Index + 1}
	after, reply := flight.Apply(flight.View{Header: header, Flight: w.flight}, c)
	next.header.Version, next.flight = header.Version, after.Flight
	before, f := w.flight, next.flight
	if before != nil && before.State == flight.StateAwaitingApproval && f.State != flight.StateAwaitingApproval {
		last := &next.seen[len(next.seen)-1]
		last.decided, last.by = flight.FindingRejected, fmt.Sprintf("%T", c)
		if d, ok := c.(*flight.DecideApproval); ok {
			last.decided = d.Finding
		}
		if last.decided == flight.FindingApproved {
			next.approved = f.Generation
		}
		_, expired := c.(*flight.WakeUp)
		switch over := w.header.Now >= before.CreatedAt.Add(approvalTime); {
		case over && last.decided == flight.FindingApproved:
			return next, reply, "approved too late"
		case expired && !over:
			return next, reply, "expired early"
		case last.decided == flight.FindingRejected && f.State != flight.StateCancelled:
			return next, reply, "went on without an approval"
		}
	}
	if f != nil && f.State == flight.StateAwaitingApproval && (before == nil || before.State != flight.StateAwaitingApproval) {
		next.seen = append(next.seen, sight{version: f.Version, generation: f.Generation})
	}
	if reply.Decision == flight.DecisionProceed && next.approved != f.Generation {
		return next, reply, "acted without an approval"
	}
	return next, reply, ""
}

func (w *approvalWorld) successors(rule *approvalRule) (all []struct {
	by, broken string
	world      *approvalWorld
}) {
	add := func(by string, next *approvalWorld, broken string) {
		all = append(all, struct {
			by, broken string
			world      *approvalWorld
		}{by, broken, next})
	}
	run := func(by string, c flight.Command) flight.Reply {
		next, reply, broken := w.apply(c, w.header)
		add(by, next, broken)
		return reply
	}
	submission := flight.Submission{Fingerprint: fp1, Policy: flight.Policy{Approval: true, ApprovalWithin: approvalTime, Retry: flight.RetryPolicy{Attempts: 2}}, Requester: "shop"}
	run("submit", &flight.Submit{Key: soloKey, Submission: submission})
	nonce := flight.Nonce{1}
	if w.flight != nil {
		nonce[1] = byte(w.flight.AttemptCount)
	}
	run("open", &flight.Open{Key: soloKey, Submission: submission, Session: sessions[0], Nonce: nonce, NotAfter: w.header.Now, StoreEpoch: w.header.StoreEpoch})
	if w.header.Now < start.Add(4*time.Second) {
		next := *w
		next.header.Now = w.header.Now.Add(time.Second)
		add("a second later", &next, "")
	}
	f := w.flight
	if f == nil {
		return all
	}
	for i, s := range w.seen {
		for _, finding := range [...]flight.Finding{flight.FindingApproved, flight.FindingRejected} {
			c := &flight.DecideApproval{Key: soloKey, Generation: s.generation, Fingerprint: fp1, Version: s.version, Finding: finding, Actor: "ann"}
			if rule.change != nil {
				rule.change(w, c)
			}
			header := w.header
			if rule.until != nil {
				header = rule.until(w, header)
			}
			next, reply, broken := w.apply(c, header)
			decision := next.seen[i].decided
			switch {
			case broken != "":
			case reply.Changed && s.decided != flight.FindingNone:
				broken = "approved what nobody saw"
			case s.generation == f.Generation && f.Resolution != nil && s.decided == finding && strings.HasSuffix(s.by, "DecideApproval") && reply.Decision != flight.DecisionAccepted:
				broken = "a repeat is not answered as the first decision"
			case reply.Decision == flight.DecisionAccepted && decision != finding:
				broken = "two decisions were accepted"
			}
			add(fmt.Sprintf("%v what was seen at %v", finding, s.version), next, broken)
		}
	}
	if g := f.Generation; g < 3 {
		next, _, broken := w.apply(&flight.Retry{Key: soloKey, Generation: g, Actor: "bob"}, w.header)
		if rule.retried != nil && next.flight.Generation > g {
			changed := *next.flight
			rule.retried(&changed)
			next.flight = &changed
		}
		add("retry", next, broken)
	}
	run("cancel", &flight.Cancel{Key: soloKey, Generation: f.Generation, Actor: "bob"})
	run("wake", &flight.WakeUp{Key: soloKey, Generation: f.Generation})
	if a := f.OpenAttempt(); a != nil {
		for _, o := range [...]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeNotDone, flight.OutcomeUnknown} {
			run("report "+o.String(), &flight.Report{Key: soloKey, Generation: f.Generation, Token: a.Token(), Outcome: o})
		}
	}
	return all
}

// TestApprovals_Explored reaches every state of a flight that needs an approval, in up to three generations: approvals,
// rejections, expiries, cancels, retries and opens in any order, with decisions about what was seen before.
func TestApprovals_Explored(t *testing.T) {
	for _, rule := range approvalRules() {
		t.Run(rule.name, func(t *testing.T) {
			first := &approvalWorld{header: testHeader}
			first.header.Version = flight.Version{Index: 1}
			type visited struct {
				world *approvalWorld
				from  int
				by    string
			}
			found, list, seen := map[string]bool{first.abstract(): true}, []visited{{world: first}}, make(map[flight.State]int)
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
						require.Less(t, len(list), 200_000, "the states have no end")
						list = append(list, visited{s.world, n, s.by})
						if f := s.world.flight; f != nil {
							seen[f.State]++
						}
					}
				}
			}
			require.Empty(t, rule.violates, "the definition holds in %d states", len(list))
			require.Greater(t, seen[flight.StateAwaitingApproval], 10)
			require.Greater(t, seen[flight.StateSucceeded], 10)
			t.Logf("holds in %d states: %v", len(list), seen)
		})
	}
}

// A retry asks anew: it names the person who wants it, and its time begins with it.
func TestApproval_RetryAsksAgain(t *testing.T) {
	sc := newScript(t, flight.Policy{Approval: true, ApprovalWithin: settleDelay})
	sc.run(submit, afterTime(settleDelay), wakeUp)
	f := sc.flight()
	require.Equal(t, flight.FindingRejected, f.Resolution.Finding)
	require.Equal(t, "rejected: "+flight.ApprovalExpired, f.Cause)
	require.Zero(t, f.ApprovalDeadline())
	sc.run(retry)
	f = sc.flight()
	require.Equal(t, f.CreatedAt.Add(settleDelay), f.ApprovalDeadline())
	require.Equal(t, "ann", f.Requester)
}
