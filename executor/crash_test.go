package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// crashSites are the rows of the table in doc.go.
var crashSites = [...]string{"before-open", "during-open", "after-open", "before-send", "during-effect", "after-effect",
	"before-report", "after-report", "before-release"}

const duringEffect = "during-effect"

// TestHazard03_04_CrashSites kills the process at each point of no return, under each recovery, and lets the caller
// retry at another process. The provider's own count of effects is the judge.
func TestHazard03_04_CrashSites(t *testing.T) {
	for _, site := range crashSites {
		t.Run(site, func(t *testing.T) {
			var transcripts strings.Builder
			for _, recovery := range recoveries {
				synctest.Test(t, func(t *testing.T) {
					fmt.Fprintf(&transcripts, "# %s\n%s\n", recovery, crashAt(t, site, recovery))
				})
			}
			executortest.RequireGolden(t, "crash/"+site, transcripts.String(), *update)
		})
	}
}

func crashAt(t *testing.T, site string, recovery flight.Recovery) string {
	w := newCluster(t)
	p := &provider{Say: w.transcript.Add, Honours: recovery == flight.RecoveryResend}
	call := effect.Call{
		Key: flight.MustKey("billing/charge/order-42"), LookUp: lookUpAt(p),
		Submission: flight.Submission{Policy: policyOf(recovery), Input: flight.NewBlob("", []byte("42 EUR"), flight.MaxInput)},
	}
	a := w.crashingNode("a", site, flightdtest.Options{NoSweeper: true})
	b := w.node("b", flightdtest.Options{})

	caller, goAway := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() { // blocked for good once node a is dead
		defer close(gone)
		_, _ = a.Do(caller, call, charge(a, p, site == duringEffect))
	}()
	synctest.Wait()
	require.Contains(t, w.transcript.String(), "a: dies "+site)

	result, err := b.Do(t.Context(), call, charge(b, p, false))
	w.recordResult("b: Do", result, err)
	var doubt *effect.InDoubt
	if errors.As(err, &doubt) {
		resolveByHand(w, b, p, call.Key)
		result, err = b.Do(t.Context(), call, charge(b, p, false))
		w.recordResult("b: Do", result, err)
	}
	require.NoError(t, err)
	requireOneEffect(t, p, b.Flight(call.Key), result)
	w.transcript.Add("effects: %d", p.Effects())
	transcript := w.transcript.String()
	goAway()
	<-gone
	return transcript
}

// charge returns a handler that acts at the provider; the node may die during the effect.
func charge(n *node, p *provider, dies bool) effect.Handler {
	return func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		n.transcript.Add("%s: handler, attempt %d", n.name, at.Number())
		if string(at.Input()) != "42 EUR" {
			return effect.Answer{}, fmt.Errorf("input %q", at.Input())
		}
		answer := effectAt(p, at)
		if dies {
			n.die(duringEffect)
		}
		return answer, nil
	}
}

// effectAt performs the effect.
func effectAt(p *provider, at *effect.Attempt) effect.Answer {
	id := p.Act(at.IdempotencyKey())
	return effect.Answer{ExternalID: id, Body: []byte(id)}
}

func lookUpAt(p *provider) effect.LookUp {
	return func(_ context.Context, at *effect.Attempt) (flight.Finding, effect.Answer, error) {
		id, found := p.Find(at.IdempotencyKey())
		if !found {
			return flight.FindingNotHappened, effect.Answer{}, nil
		}
		return flight.FindingHappened, effect.Answer{ExternalID: id, Body: []byte(id)}, nil
	}
}

// resolveByHand acts as the person who checks the provider and resolves the doubt.
func resolveByHand(w *cluster, n *node, p *provider, key flight.Key) {
	w.t.Helper()
	id, found := p.Find(w.idempotencyKey(key))
	if found {
		w.transcript.Add("person: %s is there: it happened", id)
		n.Resolve(w.t, key, flight.FindingHappened, id, []byte(id))
		return
	}
	w.transcript.Add("person: nothing is there: it did not happen")
	n.Resolve(w.t, key, flight.FindingNotHappened, "", nil)
}

func (c *cluster) idempotencyKey(key flight.Key) string {
	header := c.ledger.Header()
	return header.IdempotencyKey(key, 1)
}

// recordResult records the result that a caller got.
func (c *cluster) recordResult(who string, result effect.Result, err error) {
	if err != nil {
		c.transcript.Add("%s: %T", who, err)
		return
	}
	c.transcript.Add("%s: %v, %s, attempt %d", who, result.Source, result.Answer.ExternalID, result.Attempt)
}

// requireOneEffect checks the guarantee of all policies in this test: one effect and its receipt.
func requireOneEffect(t *testing.T, p *provider, f *flight.Flight, result effect.Result) {
	t.Helper()
	require.Equal(t, 1, p.Effects(), "effects at the provider")
	require.Equal(t, flight.StateSucceeded, f.State)
	require.NotNil(t, f.Receipt)
	require.Equal(t, "ch_1", f.Receipt.ExternalID)
	require.Equal(t, "ch_1", result.Answer.ExternalID)
	require.Equal(t, "ch_1", string(result.Answer.Body))
	require.False(t, f.Overlap)
}
