package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// session is one party that holds attempts at the server, with the table of the nonces that were sent under it.
type session struct {
	client  *Client
	id      string
	oneShot bool // the server made it for one open, and ends it with that attempt
	every   time.Duration
	trust   trust
	watch   *time.Timer     // looks at trust when it should be over
	dying   context.Context // ends when the right to start effects is lost
	lost    context.CancelCauseFunc
	alive   context.Context // ends when nobody renews it any more
	end     context.CancelFunc

	mu         sync.Mutex
	nonces     map[string]*opening // by what a renewal lists: wire.NonceHex
	unexpected map[string]bool     // nonces that the renewal before listed, though they were not expected
	retired    bool                // nothing new is opened under it
}

// maxNonces bounds the table: a session with so many nonces, held or given up, makes way for a new one. A server lets one
// session hold about as many attempts.
const maxNonces = 4_000

// track puts a nonce into the table, before its first open is sent under this session. It answers false when nothing new is
// opened under it any more.
func (s *session) track(o *opening) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired && !s.oneShot {
		return false
	}
	o.session = s
	s.nonces[wire.NonceHex(o.nonce)] = o
	return true
}

// update changes what is known of a nonce. One that becomes unknown leaves the table.
func (o *opening) update(change func()) {
	s := o.session
	if s == nil {
		change()
		return
	}
	s.mu.Lock()
	change()
	if o.phase == phaseUnknown {
		delete(s.nonces, wire.NonceHex(o.nonce))
	}
	over, full := s.retired && !s.has((*opening).needsSession), !s.retired && len(s.nonces) > maxNonces
	s.mu.Unlock()
	switch {
	case over:
		s.end()
	case full:
		s.retire()
	}
}

// has reports whether the table has a nonce of that kind. The caller holds the mutex.
func (s *session) has(kind func(*opening) bool) bool {
	for _, o := range s.nonces {
		if kind(o) {
			return true
		}
	}
	return false
}

func (o *opening) become(p phase) { o.update(func() { o.phase = p }) }

// outlast keeps an attempt whose effect is over and whose report lies in the spool: nobody is to act beside it while this
// process lives. Nothing new is opened under its session, which ends when it holds nothing but what was reported, or never
// will be.
func (o *opening) outlast(report string) {
	o.update(func() { o.phase, o.name, o.since, o.cancel = phaseSpooled, report, time.Now(), nil })
	o.session.retire()
}

// acknowledge ends what is to be known of an attempt whose report the ledger has taken. A report that nothing was done is
// kept: where an old answer lists the attempt once more, it must not become a doubt.
func (o *opening) acknowledge(r *ReportRequest) {
	if r.Outcome != flight.NotDone.String() {
		o.become(phaseUnknown)
		return
	}
	body := r.AppendJSON(nil)
	o.update(func() { o.phase, o.report, o.cancel = phaseReported, body, nil })
}

// reportHold bounds how long a session is renewed for a report that lies in the spool.
const reportHold = 10 * time.Minute

// inSpool reports whether the report of an effect that is over still lies in the spool.
func (o *opening) inSpool(p *spool) bool { return o.phase == phaseSpooled && p.has(o.name) }

// waits reports whether the session is to live for such a report.
func (o *opening) waits(p *spool) bool { return time.Since(o.since) < reportHold && o.inSpool(p) }

// over reports whether the session is needed for nothing but reports that were delivered meanwhile, or never will be.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired && !s.has(func(o *opening) bool {
		return o.needsSession() && o.phase != phaseSpooled || o.waits(s.client.spool)
	})
}

// Trust is what is left of the time in which effects may be started under the session.
func (s *session) Trust() time.Duration {
	if s.dying.Err() != nil {
		return 0
	}
	return s.trust.left()
}

// checkTrust runs when trust should be over, and ends it if nothing has prolonged it.
func (s *session) checkTrust() {
	switch left := s.trust.left(); {
	case s.alive.Err() != nil:
	case left > 0:
		s.watch.Reset(left)
	default:
		s.lose()
	}
}

// lose ends the right to start effects.
func (s *session) lose() {
	s.retire()
	s.lost(effect.ErrLeaseLost)
}

// retire opens nothing under the session any more. It is marked first: whoever makes it the current one meanwhile sees that,
// or is seen.
func (s *session) retire() {
	s.mu.Lock()
	s.retired = true
	over := !s.has((*opening).needsSession)
	s.mu.Unlock()
	s.client.sessions.retire(s)
	if over {
		s.end()
	}
}

func (s *session) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// keep renews the session until it ends.
func (s *session) keep() {
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		select {
		case <-s.alive.Done():
			if s.client.runner.Draining.Err() == nil { // else Close gives it up
				s.giveUp(s.client.runner.Draining)
				s.client.sessions.forget(s)
			}
			return
		case <-s.client.runner.Life.Done():
			return // Close gives it up
		case <-timer.C:
		}
		if s.over() {
			s.end()
			continue
		}
		next := s.every
		if !s.renew() {
			next = min(next, longPause)
		}
		timer.Reset(next)
	}
}

// giveUp tells the server that the session is over, unless a handler has not returned under it: nobody is to be let act
// beside that; or a report waits, which may come before the session ends by its time to live.
func (s *session) giveUp(ctx context.Context) {
	s.mu.Lock()
	acts := s.has(func(o *opening) bool { return o.phase == phaseHeld || o.waits(s.client.spool) })
	s.mu.Unlock()
	if acts || s.oneShot || s.dying.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	_ = s.client.CloseSession(ctx, s.id) // else it ends by its time to live
}

// renew renews the session once, deals with what the server lists as open under it, and answers whether that went well.
func (s *session) renew() bool {
	ask, open := RenewRequest{OpenDigest: s.digest()}, []wire.OpenAttempt(nil)
	for more := true; more; {
		a, err := s.client.renew(s.client.runner.Life, s.id, ask, max(s.every/2, time.Second), 1)
		if lost := (*effect.LeaseLost)(nil); errors.As(err, &lost) {
			s.lose()
			s.end()
			return true
		}
		if err != nil {
			return false
		}
		s.trust.extend(a.sent, a.TrustMS)
		for _, id := range a.CancelRequested {
			s.cancel(id)
		}
		open = append(open, a.Open...)
		if more = a.More && len(a.Open) > 0 && open[len(open)-1].FlightID != ask.After; more {
			ask.After = open[len(open)-1].FlightID
		}
	}
	s.settle(open)
	return true
}

// digest is that of the attempts which are open under the session for all that its owner knows.
func (s *session) digest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []wire.OpenAttempt
	for nonce, o := range s.nonces {
		if o.phase == phaseHeld || o.phase == phaseSpooled {
			open = append(open, wire.OpenAttempt{Nonce: nonce, Attempt: o.number})
		}
	}
	return wire.OpenDigest(open)
}

// settle deals with the attempts that a renewal lists.
func (s *session) settle(open []wire.OpenAttempt) {
	unexpected := make(map[string]bool)
	for i := range open {
		at := &open[i]
		key, err := flight.ParseKey(at.Key)
		if err != nil || key.FlightID().String() != at.FlightID {
			continue
		}
		s.mu.Lock()
		o := s.nonces[at.Nonce]
		if o == nil {
			o = &opening{key: key}
		}
		waits := o.inSpool(s.client.spool)
		if !isExpected(o.phase, waits) {
			unexpected[at.Nonce] = true
		}
		what := dutyOf(o.phase, waits, s.unexpected[at.Nonce])
		if o.busy || o.key != key {
			what = doNothing
		}
		s.mu.Unlock()
		s.client.carryOut(what, o, at)
		if what == reportAgain || what == reportUnknown {
			s.retire() // where the report ends nothing, the end of the session does
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unexpected = unexpected
}

// carryOut does in the background what is to be done about a listed attempt. Where it fails, the next renewal lists the attempt
// again.
func (c *Client) carryOut(what duty, o *opening, at *wire.OpenAttempt) {
	report := o.report
	switch what {
	case doNothing:
		return
	case abandonAttempt:
		c.background(func() { c.tryAbandon(c.runner.Life, o) })
		return
	case reportUnknown:
		r := ReportRequest{FencingToken: at.FencingToken, Key: at.Key, Outcome: flight.Unknown.String(),
			Error: "the caller that holds its session does not know this attempt"}
		report = r.AppendJSON(nil)
	}
	c.background(func() { _, _ = c.bring(c.runner.Life, c.reportRequest(o.key, report)) })
}

// errCancelled is the cause of an attempt's context when somebody asked for the flight's cancellation.
var errCancelled = errors.New("somebody asked for its cancellation")

// cancel ends the attempts of a flight that somebody wants cancelled.
func (s *session) cancel(word string) {
	id, err := flight.ParseID(word)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.nonces {
		if o.cancel != nil && o.key.FlightID() == id {
			o.cancel(errCancelled)
		}
	}
}
