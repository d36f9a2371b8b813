package executor_test

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
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// deskSites are the rows of the desk's table in doc.go: where flightd dies, its caller living on, and where the caller
// dies, alone and with flightd.
var (
	deskSites   = [...]string{"before-claim", "after-claim", "after-open", "before-report", "after-report", "before-release"}
	callerSites = [...]string{"before-send", "during-effect", "before-report", "after-report"}
)

// guest is a remote caller: it knows its session, its nonce, and the token that it was given.
type guest struct {
	w       *world
	name    string
	at      atomic.Pointer[node] // the flightd that it talks to
	p       *provider
	req     executor.OpenRequest
	dies    string // where it dies, alone
	takes   bool   // and takes its flightd with it
	renewed chan struct{}
}

func (w *world) guest(name string, at *node, p *provider, recovery flight.Recovery) *guest {
	g := &guest{w: w, name: name, p: p, req: executor.OpenRequest{
		Key: flight.MustKey("billing/charge/order-42"), Nonce: flight.Nonce{byte(len(name))}, Owner: name, Wait: time.Minute,
		Submission: flight.Submission{Policy: policyOf(recovery), Input: flight.NewBlob("", []byte("42 EUR"), flight.MaxInput)},
	}}
	g.at.Store(at)
	return g
}

// stay makes a session and renews it at whatever flightd the guest talks to, until ctx ends.
func (g *guest) stay(ctx context.Context) {
	s, err := g.at.Load().Desk().NewSession(ctx, 0, g.name)
	require.NoError(g.w.t, err)
	g.req.Session = s.Session
	g.renewed = make(chan struct{})
	go func() {
		defer close(g.renewed)
		tick := time.NewTicker(s.RenewEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			patience, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = g.at.Load().Desk().Renew(patience, s.Session, executor.Renewal{Nonces: []flight.Nonce{g.req.Nonce}})
			cancel()
		}
	}()
}

// errDied says that the guest is dead.
var errDied = errors.New("the guest died")

func (g *guest) dying(site string) bool {
	if g.dies != site {
		return false
	}
	g.w.script.say("%s: dies %s", g.name, site)
	if g.takes {
		go g.at.Load().die("with it")
		synctest.Wait()
	}
	return true
}

// fly opens, acts and reports, as the answers say.
func (g *guest) fly(ctx context.Context) error {
	answer, err := g.at.Load().Desk().Open(ctx, g.req)
	for err == nil && answer.Decision == flight.Look {
		answer, err = g.look(ctx, answer)
	}
	if err != nil {
		g.w.script.say("%s: told %s", g.name, errorWord(err))
		return err
	}
	if answer.Decision == flight.Replay {
		g.w.script.say("%s: told replay, %s", g.name, answer.Flight.Receipt.ExternalID)
		return nil
	}
	return g.act(ctx, answer)
}

func (g *guest) act(ctx context.Context, answer executor.OpenAnswer) error {
	g.w.script.say("%s: told proceed with attempt %d", g.name, answer.Flight.AttemptNumber())
	require.Equal(g.w.t, "42 EUR", string(answer.Input.Data))
	require.Positive(g.w.t, answer.Trust)
	if g.dying("before-send") {
		return errDied
	}
	made := g.p.act(effect.NewAttempt(effect.Spec{IdempotencyKey: answer.IdempotencyKey}))
	if g.dying("during-effect") || g.dying("before-report") {
		return errDied
	}
	return g.report(ctx, answer, made)
}

func (g *guest) report(ctx context.Context, answer executor.OpenAnswer, made effect.Answer) error {
	for {
		patience, cancel := context.WithTimeout(ctx, 5*time.Second)
		type told struct {
			f   *flight.Flight
			err error
		}
		answered := make(chan told, 1)
		go func() {
			f, err := g.at.Load().Desk().Report(patience, executor.ReportRequest{
				ID: answer.Flight.ID, FencingToken: answer.FencingToken, Outcome: flight.Succeeded, ExternalID: made.ExternalID,
				Body: flight.NewBlob("", made.Body, flight.MaxReceiptBody),
			})
			answered <- told{f, err}
		}()
		select {
		case a := <-answered:
			cancel()
			if g.dying("after-report") {
				return errDied
			}
			if a.err != nil {
				g.w.script.say("%s: report told %s", g.name, errorWord(a.err))
				return a.err
			}
			g.w.script.say("%s: report told %v", g.name, a.f.State)
			return nil
		case <-patience.Done(): // no answer: the caller asks whoever answers
			cancel()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			g.w.script.say("%s: no answer, reports again", g.name)
			g.at.Store(g.w.heir.Load())
		}
	}
}

func (g *guest) look(ctx context.Context, answer executor.OpenAnswer) (executor.OpenAnswer, error) {
	verdict := executor.VerdictRequest{ID: answer.Flight.ID, Probe: answer.Probe, Result: flight.DidNotHappen, Open: g.req}
	if id, found := g.p.find(answer.IdempotencyKey); found {
		verdict.Result, verdict.ExternalID, verdict.Body = flight.Happened, id, flight.NewBlob("", []byte(id), flight.MaxReceiptBody)
	}
	return g.at.Load().Desk().Verdict(ctx, verdict)
}

func errorWord(err error) string { return fmt.Sprintf("%T", err) }

// TestHazard35_36_DeskCrashSites kills flightd under a caller that lives on, keeps its session and repeats what was not
// answered, with the same nonce and the same token, to the next flightd.
func TestHazard35_36_DeskCrashSites(t *testing.T) {
	for _, site := range deskSites {
		t.Run(site, func(t *testing.T) {
			var told strings.Builder
			for _, recovery := range recoveries {
				synctest.Test(t, func(t *testing.T) {
					fmt.Fprintf(&told, "# %s\n%s\n", recovery, deskCrash(t, site, recovery))
				})
			}
			golden(t, "desk/flightd-"+site, told.String())
		})
	}
}

func deskCrash(t *testing.T, site string, recovery flight.Recovery) string {
	w := newWorld(t)
	p := &provider{say: w.script.say, honours: recovery == flight.Resend}
	a := w.crashing("a", site, flightdtest.Options{NoSweeper: true})
	g := w.guest("caller", a, p, recovery)
	ctx, leave := context.WithCancel(t.Context())
	g.stay(ctx)
	done := make(chan error, 1)
	first, giveUp := context.WithCancel(ctx)
	go func() { done <- g.fly(first) }()
	synctest.Wait()
	require.Contains(t, w.script.String(), "a: dies "+site)
	w.heir.Store(w.node("b", flightdtest.Options{}))
	g.at.Store(w.heir.Load())
	if strings.HasSuffix(site, "open") || strings.HasSuffix(site, "claim") { // no answer: the caller asks whoever answers
		w.script.say("caller: no answer, opens again")
		go func() { <-done }()
		require.NoError(t, g.fly(ctx))
	} else {
		require.NoError(t, <-done)
	}
	judgeDesk(t, w, p, g.req.Key)
	told := w.script.String()
	giveUp()
	leave()
	<-g.renewed
	return told
}

func judgeDesk(t *testing.T, w *world, p *provider, key flight.Key) {
	t.Helper()
	f, err := w.ledger.Flight(key.FlightID())
	require.NoError(t, err)
	require.Equal(t, flight.StateSucceeded, f.State)
	require.Equal(t, "ch_1", f.Receipt.ExternalID)
	require.Equal(t, 1, p.effects(), "effects at the provider")
	require.False(t, f.Overlap)
	w.script.say("effects: %d", p.effects())
}

// TestHazard03_04_CallerCrashSites kills the remote caller, alone and together with flightd. Nobody asks; the sweeper
// notices. Then another caller comes.
func TestHazard03_04_CallerCrashSites(t *testing.T) {
	for _, both := range []bool{false, true} {
		for _, site := range callerSites {
			name := "caller-" + site
			if both {
				name = "both-" + site
			}
			t.Run(name, func(t *testing.T) {
				var told strings.Builder
				for _, recovery := range recoveries {
					synctest.Test(t, func(t *testing.T) {
						fmt.Fprintf(&told, "# %s\n%s\n", recovery, callerCrash(t, site, both, recovery))
					})
				}
				golden(t, "desk/"+name, told.String())
			})
		}
	}
}

func callerCrash(t *testing.T, site string, both bool, recovery flight.Recovery) string {
	w := newWorld(t)
	p := &provider{say: w.script.say, honours: recovery == flight.Resend}
	a := w.node("a", flightdtest.Options{})
	g := w.guest("caller", a, p, recovery)
	g.dies, g.takes = site, both
	alive, die := context.WithCancel(t.Context())
	g.stay(alive)
	require.ErrorIs(t, g.fly(alive), errDied)
	die()
	<-g.renewed
	w.heir.Store(a)
	if both {
		w.heir.Store(w.node("b", flightdtest.Options{}))
	}
	asleep(t, time.Minute)
	f := w.heir.Load().Flight(g.req.Key)
	w.script.say("unasked: %v", f.State)

	next := w.guest("another", w.heir.Load(), p, recovery)
	err := next.fly(t.Context())
	var doubt *effect.InDoubt
	if errors.As(err, &doubt) {
		settleByHand(w, w.heir.Load(), p, g.req.Key)
		err = next.fly(t.Context())
	}
	require.NoError(t, err)
	judgeDesk(t, w, p, g.req.Key)
	return w.script.String()
}
