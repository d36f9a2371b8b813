package remote_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// nodeSites are the rows of the first crash table in doc.go, callerSites the rows of the second.
var (
	nodeSites   = [...]string{"before-open", "during-open", "after-open", "before-report", "after-report", "before-release"}
	callerSites = [...]string{"before-send", "during-effect", "before-report", "after-report"}
)

// caller is a remote caller with its session, its nonce and its token.
type caller struct {
	w       *cluster
	name    string
	at      atomic.Pointer[node] // the caller's node
	p       *provider
	req     remote.OpenRequest
	nonce   byte
	dies    string // where the caller dies
	takes   bool   // the caller's node dies, too
	renewed chan struct{}
}

func (cl *cluster) caller(name string, at *node, p *provider, recovery flight.Recovery) *caller {
	c := &caller{w: cl, name: name, p: p, nonce: byte(10 * len(name)), req: remote.OpenRequest{
		Key: flight.MustKey("billing/charge/order-42"), Owner: name, Wait: time.Minute,
		Submission: flight.Submission{Policy: flight.Policy{Recovery: recovery, AttemptTimeout: 10 * time.Second},
			Input: flight.NewBlob("", []byte("42 EUR"), flight.MaxInput)},
	}}
	c.newNonce()
	c.at.Store(at)
	return c
}

func (c *caller) newNonce() {
	c.nonce++
	c.req.Nonce, c.req.NotAfter = flight.Nonce{c.nonce}, c.w.ledger.Now().Add(30*time.Second)
}

// keepSession creates a session and renews it at the caller's current node until ctx ends.
func (c *caller) keepSession(ctx context.Context) {
	s, err := c.at.Load().NewSession(ctx, 0, c.name)
	require.NoError(c.w.t, err)
	c.req.Session = s.Session
	c.renewed = make(chan struct{})
	go func() {
		defer close(c.renewed)
		tick := time.NewTicker(s.RenewEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			bounded, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = c.at.Load().Renew(bounded, s.Session, remote.RenewRequest{})
			cancel()
		}
	}()
}

// errCallerDied is the error of a call whose caller has died.
var errCallerDied = errors.New("the caller died")

func (c *caller) diesAt(site string) bool {
	if c.dies != site {
		return false
	}
	c.w.transcript.Add("%s: dies %s", c.name, site)
	if c.takes {
		go c.at.Load().die("with it")
		synctest.Wait()
	}
	return true
}

// call opens, acts and reports, as the protocol requires.
func (c *caller) call(ctx context.Context) error {
	answer, err := c.at.Load().Open(ctx, c.req)
	for err == nil && answer.Decision == flight.DecisionVerify {
		answer, err = c.lookUp(ctx, answer)
	}
	if err != nil {
		c.w.transcript.Add("%s: answered %s", c.name, errorType(err))
		return err
	}
	if answer.Decision == flight.DecisionReplay {
		c.w.transcript.Add("%s: answered replay, %s", c.name, answer.Flight.Receipt.ExternalID)
		return nil
	}
	return c.act(ctx, answer)
}

func (c *caller) act(ctx context.Context, answer remote.OpenAnswer) error {
	c.w.transcript.Add("%s: answered proceed with attempt %d", c.name, answer.Flight.AttemptNumber())
	require.Equal(c.w.t, "42 EUR", string(answer.Input.Data))
	require.Positive(c.w.t, answer.Trust)
	if c.diesAt("before-send") {
		return errCallerDied
	}
	made := c.p.Act(answer.IdempotencyKey)
	if c.diesAt("during-effect") || c.diesAt("before-report") {
		return errCallerDied
	}
	return c.report(ctx, answer, made)
}

func (c *caller) report(ctx context.Context, answer remote.OpenAnswer, made string) error {
	word := reportOf(answer, flight.OutcomeSucceeded, made)
	for {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		type answered struct {
			f   *flight.Flight
			err error
		}
		back := make(chan answered, 1)
		go func() {
			f, err := c.at.Load().Report(bounded, word)
			back <- answered{f, err}
		}()
		select {
		case a := <-back:
			cancel()
			if c.diesAt("after-report") {
				return errCallerDied
			}
			if a.err != nil {
				c.w.transcript.Add("%s: report answered %s", c.name, errorType(a.err))
				return a.err
			}
			c.w.transcript.Add("%s: report answered %v", c.name, a.f.State)
			return nil
		case <-bounded.Done(): // no answer: the caller retries at the next node
			cancel()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.w.transcript.Add("%s: no answer, reports again", c.name)
			c.at.Store(c.w.next.Load())
		}
	}
}

// lookUp asks the provider and sends the finding with a new nonce.
func (c *caller) lookUp(ctx context.Context, answer remote.OpenAnswer) (remote.OpenAnswer, error) {
	c.newNonce()
	verification := remote.VerificationRequest{ID: answer.Flight.ID, Verification: answer.Verification, Result: flight.FindingNotHappened, Open: c.req}
	if id, found := c.p.Find(answer.IdempotencyKey); found {
		verification.Result, verification.ExternalID, verification.Body = flight.FindingHappened, id, flight.NewBlob("", []byte(id), flight.MaxReceiptBody)
	}
	return c.at.Load().Verify(ctx, verification)
}

func errorType(err error) string { return fmt.Sprintf("%T", err) }

// TestHazard35_36_NodeCrashSites kills a node whose caller lives, keeps its session and repeats unanswered requests
// with the same nonce and token at the next node.
func TestHazard35_36_NodeCrashSites(t *testing.T) {
	for _, site := range nodeSites {
		t.Run(site, func(t *testing.T) {
			var transcript strings.Builder
			for _, recovery := range recoveries {
				synctest.Test(t, func(t *testing.T) {
					fmt.Fprintf(&transcript, "# %s\n%s\n", recovery, runNodeCrash(t, site, recovery))
				})
			}
			executortest.RequireGolden(t, "node-"+site, transcript.String(), *update)
		})
	}
}

func runNodeCrash(t *testing.T, site string, recovery flight.Recovery) string {
	w := newCluster(t)
	p := &provider{Say: w.transcript.Add, Honours: recovery == flight.RecoveryResend}
	a := w.node("a", site)
	c := w.caller("caller", a, p, recovery)
	ctx, leave := context.WithCancel(t.Context())
	c.keepSession(ctx)
	done := make(chan error, 1)
	first, giveUp := context.WithCancel(ctx)
	go func() { done <- c.call(first) }()
	sleep(t, 100*time.Millisecond)
	require.Contains(t, w.transcript.String(), "a: dies "+site)
	w.next.Store(w.node("b", ""))
	c.at.Store(w.next.Load())
	if strings.HasSuffix(site, "open") { // no answer: the caller retries at the next node
		w.transcript.Add("caller: no answer, opens again")
		go func() { <-done }()
		require.NoError(t, c.call(ctx))
	} else {
		require.NoError(t, <-done)
	}
	requireOneEffect(t, w, p, c.req.Key)
	waitForReleases(t)
	claims, err := w.next.Load().leases.Claims(t.Context())
	require.NoError(t, err)
	require.Empty(t, claims)
	transcript := w.transcript.String()
	giveUp()
	leave()
	<-c.renewed
	return transcript
}

func requireOneEffect(t *testing.T, w *cluster, p *provider, key flight.Key) {
	t.Helper()
	f, err := w.ledger.Flight(key.FlightID())
	require.NoError(t, err)
	require.Equal(t, flight.StateSucceeded, f.State)
	require.Equal(t, "ch_1", f.Receipt.ExternalID)
	require.Equal(t, 1, p.Effects(), "effects at the provider")
	require.False(t, f.Overlap)
	w.transcript.Add("effects: %d", p.Effects())
}

// TestHazard03_04_CallerCrashSites kills the caller, alone and together with its node. The sweeper ends the attempt
// without a caller. Then another caller opens.
func TestHazard03_04_CallerCrashSites(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, site := range callerSites {
			name := "caller-" + site
			if both {
				name = "both-" + site
			}
			t.Run(name, func(t *testing.T) {
				var transcript strings.Builder
				for _, recovery := range recoveries {
					synctest.Test(t, func(t *testing.T) {
						fmt.Fprintf(&transcript, "# %s\n%s\n", recovery, runCallerCrash(t, site, both, recovery))
					})
				}
				executortest.RequireGolden(t, name, transcript.String(), *update)
			})
		}
	}
}

func runCallerCrash(t *testing.T, site string, both bool, recovery flight.Recovery) string {
	w := newCluster(t)
	p := &provider{Say: w.transcript.Add, Honours: recovery == flight.RecoveryResend}
	a := w.node("a", "")
	c := w.caller("caller", a, p, recovery)
	c.dies, c.takes = site, both
	alive, die := context.WithCancel(t.Context())
	c.keepSession(alive)
	require.ErrorIs(t, c.call(alive), errCallerDied)
	die()
	<-c.renewed
	w.next.Store(a)
	if both {
		w.next.Store(w.node("b", ""))
	}
	sleep(t, time.Minute)
	f, err := w.ledger.Flight(c.req.Key.FlightID())
	require.NoError(t, err)
	w.transcript.Add("unasked: %v", f.State)

	next := w.caller("another", w.next.Load(), p, recovery)
	err = next.call(t.Context())
	var doubt *effect.InDoubt
	if errors.As(err, &doubt) {
		resolveByHand(w, p, c.req.Key)
		next.newNonce()
		err = next.call(t.Context())
	}
	require.NoError(t, err)
	requireOneEffect(t, w, p, c.req.Key)
	return w.transcript.String()
}

// resolveByHand acts as the person who checks the provider and resolves the doubt.
func resolveByHand(w *cluster, p *provider, key flight.Key) {
	f, _ := w.ledger.Flight(key.FlightID())
	c := &flight.Resolve{Key: key, Generation: f.Generation, Version: f.Version, Finding: flight.FindingNotHappened, Actor: "person"}
	if p.Effects() > 0 {
		c.Finding, c.ExternalID, c.Body = flight.FindingHappened, "ch_1", flight.NewBlob("", []byte("ch_1"), flight.MaxReceiptBody)
		w.transcript.Add("person: ch_1 is there: it happened")
	} else {
		w.transcript.Add("person: nothing is there: it did not happen")
	}
	reply, err := w.ledger.Propose(w.t.Context(), c)
	require.NoError(w.t, err)
	require.Equal(w.t, flight.DecisionAccepted, reply.Decision)
}
