package executor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

// deskSoak is the soak with callers who perform effects themselves: they repeat what was not answered, at any node, die before
// and after they acted, and look where they are told to. Nodes are replaced in the middle of it, and each loses its own way to
// the ledger, while the others go on.
type deskSoak struct {
	soak
	late  []*flightdtest.Flightd // nodes that were replaced
	lines []*line                // of all of them

	trusted map[flight.Key]map[*flyer]time.Time // until when who was told to act believes in it
}

// TestDeskSoak lets the independent count of effects judge, and looks at every leave to act whether another one still stands.
func TestDeskSoak(t *testing.T) {
	soaks(t, deskSoakOnce)
}

func deskSoakOnce(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	s := &deskSoak{trusted: map[flight.Key]map[*flyer]time.Time{}, soak: soak{
		t: t, rnd: rand.New(rand.NewPCG(seed, 2)), over: make(chan struct{}), effects: map[flight.Key]*provider{}}}
	first := flightdtest.Open(t, s.lined())
	s.nodes = []*flightdtest.Flightd{first, first.Restart(t, s.lined())}
	var callers, trouble sync.WaitGroup
	trouble.Go(s.trouble)
	trouble.Go(s.replace)
	trouble.Go(s.silence)
	for i := range 20 {
		call := callOf(fmt.Sprint(i), `{}`, flight.Policy{Recovery: recoveries[i%3], AttemptTimeout: time.Duration(i%2) * 20 * time.Second})
		p := &provider{say: func(string, ...any) {}, honours: i%3 == int(flight.Resend)}
		s.effects[call.Key] = p
		for n := range 3 {
			callers.Go(func() { s.flyer(call, p, n > 0) })
		}
	}
	callers.Wait()
	close(s.over)
	trouble.Wait()
	for _, n := range s.late {
		n.Leases.Thaw()
		n.Leases.Partition(leasetest.CutNothing)
	}
	asleep(t, 15*time.Minute) // everything that can settle has settled, and all sessions are over
	for key, p := range s.effects {
		s.judge(key, p)
	}
	claims, err := first.Leases.Claims(t.Context())
	require.NoError(t, err)
	require.Empty(t, claims)
}

// replace takes a node out, which does not reach etcd any more, and another one takes its place.
func (s *deskSoak) replace() {
	for range 6 {
		select {
		case <-s.over:
			return
		case <-time.After(s.nap(time.Minute)):
		}
		next := s.nodes[0].Restart(s.t, s.lined())
		s.mu.Lock()
		old := s.nodes[1]
		s.nodes[1] = next
		s.late = append(s.late, old)
		s.mu.Unlock()
		old.Leases.Freeze()
	}
}

// line is a node's own way to the ledger.
type line struct {
	*flightdtest.Ledger
	mu    sync.Mutex
	state lineState
}

type lineState int

const (
	lineClear lineState = iota
	lineDeaf            // what is proposed arrives, and no answer comes back
	lineCut             // nothing arrives
)

func (l *line) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	l.mu.Lock()
	state := l.state
	l.mu.Unlock()
	if state == lineCut {
		return flight.Reply{}, executor.ErrAmbiguous
	}
	reply, err := l.Ledger.Propose(ctx, c)
	if state == lineDeaf {
		return flight.Reply{}, executor.ErrAmbiguous
	}
	return reply, err
}

func (l *line) turn(state lineState) { l.mu.Lock(); l.state = state; l.mu.Unlock() }

// lined makes a node with a line of its own.
func (s *deskSoak) lined() flightdtest.Options {
	return flightdtest.Options{Configure: func(cfg *executor.Config) {
		l := &line{Ledger: cfg.Ledger.(*flightdtest.Ledger)}
		cfg.Ledger = l
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, l)
	}}
}

// silence lets one line or another go for a while, long enough for an open to be given up.
func (s *deskSoak) silence() {
	for over := false; !over; {
		select {
		case <-s.over:
			over = true
		case <-time.After(s.nap(15 * time.Second)):
		}
		s.mu.Lock()
		lines := slices.Clone(s.lines)
		s.mu.Unlock()
		for _, l := range lines {
			if over {
				l.turn(lineClear)
			} else {
				l.turn(lineState(s.n(3)))
			}
		}
	}
}

// desk is that of any node.
func (s *deskSoak) desk() *executor.Desk {
	i := s.n(len(s.nodes))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[i].Desk()
}

// turn is a mutex for which virtual time goes on.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// flyer is a caller of the desk.
type flyer struct {
	*deskSoak
	call effect.Call
	p    *provider
	own  bool // it keeps a session of its own

	mu      turn // held while a renewal is on its way
	session flight.SessionID
	held    map[flight.Nonce]bool
	until   time.Time // of its trust
	acts    uint32    // the attempt for which it was told to act, until it reports; 0: none
	nonce   flight.Nonce
}

func (s *deskSoak) flyer(call effect.Call, p *provider, own bool) {
	f := &flyer{deskSoak: s, call: call, p: p, own: own, held: map[flight.Nonce]bool{}, mu: make(turn, 1)}
	ctx, die := context.WithCancel(s.t.Context())
	var renews sync.WaitGroup
	renews.Go(func() { f.renew(ctx) })
	defer renews.Wait()
	defer die()
	for range 4 {
		time.Sleep(s.nap(20 * time.Second))
		if !f.fly() {
			return
		}
	}
}

// renew keeps the session, one renewal after the other.
func (f *flyer) renew(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(4 * time.Second):
		}
		f.mu.Lock()
		if f.session != "" {
			sent := time.Now()
			a, err := f.desk().Renew(ctx, f.session, executor.Renewal{Nonces: slices.AppendSeq([]flight.Nonce{}, maps.Keys(f.held))})
			var lost *effect.LeaseLost
			switch {
			case err == nil:
				f.believe(sent.Add(a.Trust))
				f.stands()
			case errors.As(err, &lost):
				f.session, f.until = "", time.Time{}
				f.doubtIt()
			}
		}
		f.mu.Unlock()
	}
}

// believe notes until when the flyer may start its effect.
func (f *flyer) believe(until time.Time) {
	if until.After(f.until) {
		f.until = until
	}
	f.deskSoak.mu.Lock()
	defer f.deskSoak.mu.Unlock()
	if _, told := f.trusted[f.call.Key][f]; told {
		f.trusted[f.call.Key][f] = f.until
	}
}

func (f *flyer) doubtIt() {
	f.deskSoak.mu.Lock()
	defer f.deskSoak.mu.Unlock()
	delete(f.trusted[f.call.Key], f)
}

// told notes that the flyer was told to act, and holds that against everybody else who was.
func (f *flyer) told(a executor.OpenAnswer, sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.own {
		f.session, f.until = a.Session, time.Time{}
	}
	f.deskSoak.mu.Lock()
	all := f.trusted[f.call.Key]
	if all == nil {
		all = map[*flyer]time.Time{}
		f.trusted[f.call.Key] = all
	}
	for other, until := range all {
		if other != f && f.call.Submission.Policy.AttemptTimeout == 0 && time.Now().Before(until) {
			f.t.Errorf("%s: attempt %d may act, and another caller believes that it may, too, for %v", f.call.Key, a.Flight.AttemptNumber(), time.Until(until))
		}
	}
	all[f], f.acts = time.Time{}, a.Flight.AttemptNumber()
	f.deskSoak.mu.Unlock()
	f.believe(sent.Add(a.Trust))
}

// request is an open that may be repeated.
func (f *flyer) request() executor.OpenRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	req := executor.OpenRequest{Key: f.call.Key, Submission: f.call.Submission, Nonce: f.nonce, Owner: "flyer", Wait: f.nap(30 * time.Second)}
	if f.own && f.session == "" {
		if a, err := f.desk().NewSession(f.t.Context(), 0, "flyer"); err == nil {
			f.session, f.until = a.Session, time.Now()
		}
	}
	if f.own {
		req.Session = f.session
	}
	f.held[f.nonce] = true
	return req
}

// fly opens once, and does what it is told; false: it has died.
func (f *flyer) fly() bool {
	f.mu.Lock()
	f.nonce = flight.Nonce{byte(1 + f.n(250)), byte(f.n(250)), byte(f.n(250)), byte(f.n(250))}
	if !f.own {
		f.session = ""
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.held, f.nonce)
		f.acts = 0
		f.mu.Unlock()
		f.doubtIt()
	}()
	for end := time.Now().Add(5*time.Second + f.nap(time.Minute)); time.Now().Before(end); time.Sleep(f.nap(time.Second)) {
		ctx, cancel := context.WithTimeout(f.t.Context(), f.nap(time.Minute))
		sent := time.Now()
		answer, err := f.desk().Open(ctx, f.request())
		for err == nil && answer.Decision == flight.Look {
			answer, sent, err = f.look(answer)
		}
		cancel()
		var fenced *effect.Fenced
		switch {
		case errors.As(err, &fenced):
			return true
		case err != nil:
			continue
		case answer.Decision == flight.Replay:
			if r := answer.Flight.Receipt; r == nil || r.ExternalID != "ch_1" {
				f.t.Errorf("%s: receipt %+v", f.call.Key, r)
			}
			return true
		}
		f.told(answer, sent)
		return f.act(answer)
	}
	return true
}

// look asks the provider and brings the verdict.
func (f *flyer) look(a executor.OpenAnswer) (executor.OpenAnswer, time.Time, error) {
	time.Sleep(f.nap(5 * time.Second))
	v := executor.VerdictRequest{ID: a.Flight.ID, Probe: a.Probe, Result: flight.DidNotHappen, Open: f.request()}
	if id, found := f.p.find(a.IdempotencyKey); found {
		v.Result, v.ExternalID, v.Body = flight.Happened, id, flight.NewBlob("", []byte(id), 100)
	} else if f.n(5) == 0 {
		v.Result = flight.NoVerb
	}
	v.Open.Session = a.Session
	sent := time.Now()
	answer, err := f.desk().Verdict(f.t.Context(), v)
	return answer, sent, err
}

// stands holds the ledger to what the flyer believes: while it may start, its attempt is open, and nobody has taken it for lost
// or given it back. One that has an end to its time may be taken from it.
func (f *flyer) stands() {
	if f.acts == 0 || f.call.Submission.Policy.AttemptTimeout > 0 || !time.Now().Before(f.until) {
		return
	}
	now := f.nodes[0].Flight(f.call.Key)
	if open := now.OpenAttempt(); open == nil || open.Number != f.acts {
		f.t.Errorf("%s: attempt %d may start for %v, and is over: %v, %+v", f.call.Key, f.acts, time.Until(f.until), now.State, now.Newest())
	}
}

// act performs the effect, or does not, and reports it, until somebody has heard it; false: it dies instead.
func (f *flyer) act(a executor.OpenAnswer) bool {
	time.Sleep(f.nap(3 * time.Second))
	f.mu.Lock()
	if f.n(4) == 0 { // frozen as a whole; it renews nothing meanwhile
		time.Sleep(f.nap(40 * time.Second))
	}
	starts := time.Now().Before(f.until)
	f.stands()
	f.mu.Unlock()
	outcome, fate := flight.NotDone, f.n(10)
	switch {
	case fate == 0:
		return false // before it acted
	case starts && fate > 1:
		f.p.mu.Lock()
		if _, known := f.p.findLocked(a.IdempotencyKey); !known || !f.p.honours {
			f.p.made = append(f.p.made, a.IdempotencyKey)
		}
		f.p.mu.Unlock()
		outcome = flight.Succeeded
	}
	time.Sleep(f.nap(15 * time.Second))
	switch {
	case fate == 2:
		return false // behind its effect
	case fate == 3 && outcome == flight.Succeeded:
		outcome = flight.Unknown
	}
	f.mu.Lock()
	f.acts = 0 // it starts nothing any more
	f.mu.Unlock()
	f.doubtIt()
	id := ""
	if outcome == flight.Succeeded {
		id = "ch_1"
	}
	for {
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second+f.nap(10*time.Second))
		_, err := f.desk().Report(ctx, reportOf(a, outcome, id))
		cancel()
		var fenced *effect.Fenced
		if err == nil || errors.As(err, &fenced) {
			return true
		}
		time.Sleep(f.nap(time.Second))
	}
}
