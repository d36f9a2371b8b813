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

// session is a session at the server, and the nonces that were sent under it.
type session struct {
	client  *Client
	id      string
	oneShot bool // made by the server for one open; it ends with the attempt
	every   time.Duration
	trust   trust
	watch   *time.Timer     // fires when trust should be over
	dying   context.Context // ends when effects may no longer start
	lost    context.CancelCauseFunc
	alive   context.Context // ends when the session is no longer renewed
	end     context.CancelFunc

	mu         sync.Mutex          // guards the fields below, and the lower half of each opening in nonces
	nonces     map[string]*opening // by wire.NonceHex, as renewals list them
	unexpected map[string]bool     // nonces that the previous renewal listed unexpectedly
	retired    bool                // no new opens
}

// maxNonces bounds session.nonces: a session with more is retired and replaced. A server lets one session hold about as
// many attempts.
const maxNonces = 4_000

// track adds a nonce, before its first open is sent under this session. It returns false when the session is retired.
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

// update changes an opening under its session's mutex. An opening whose phase becomes phaseUnknown is removed from the
// table.
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

// anyNonce reports whether match holds for one of the nonces. The caller holds s.mu.
func (s *session) has(kind func(*opening) bool) bool {
	for _, o := range s.nonces {
		if kind(o) {
			return true
		}
	}
	return false
}

func (o *opening) become(p phase) { o.update(func() { o.phase = p }) }

// keepUntilReported keeps the attempt's session alive while the report is in the spool, so that no other caller acts
// before the report is sent. The session is retired, and ends when it holds no other attempts and no unsent reports.
func (o *opening) outlast(report string) {
	o.update(func() { o.phase, o.name, o.since, o.cancel = phaseSpooled, report, time.Now(), nil })
	o.session.retire()
}

// acknowledge records that the ledger has stored the attempt's report. A report of not_done is kept: if an old renewal
// answer lists the attempt once more, the report is repeated, instead of an unknown outcome that would put the flight
// in doubt.
func (o *opening) acknowledge(r *ReportRequest) {
	if r.Outcome != flight.NotDone.String() {
		o.become(phaseUnknown)
		return
	}
	body := r.AppendJSON(nil)
	o.update(func() { o.phase, o.report, o.cancel = phaseReported, body, nil })
}

// maxReportHold bounds how long a session is renewed for a report in the spool.
const reportHold = 10 * time.Minute

// isSpooled reports whether the attempt's report is still in the spool.
func (o *opening) inSpool(p *spool) bool { return o.phase == phaseSpooled && p.has(o.name) }

// holdsSessionForReport reports whether the session has to stay alive for that report.
func (o *opening) waits(p *spool) bool { return time.Since(o.since) < reportHold && o.inSpool(p) }

// isObsolete reports whether the session is retired and its nonces and reports no longer need it.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired && !s.has(func(o *opening) bool {
		return o.needsSession() && o.phase != phaseSpooled || o.waits(s.client.spool)
	})
}

// Trust returns how long effects may still be started under the session.
func (s *session) Trust() time.Duration {
	if s.dying.Err() != nil {
		return 0
	}
	return s.trust.left()
}

// checkTrust runs when trust should be over. Unless a renewal has extended trust, the session is lost.
func (s *session) checkTrust() {
	switch left := s.trust.left(); {
	case s.alive.Err() != nil:
	case left > 0:
		s.watch.Reset(left)
	default:
		s.lose()
	}
}

// markLost ends the right to start effects under the session.
func (s *session) lose() {
	s.retire()
	s.lost(effect.ErrLeaseLost)
}

// retire ends new opens under the session. The mark is set before sessions.retire runs: a concurrent endCreate either
// sees the mark, or has made the session current before, and sessions.retire removes it.
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

// renewLoop renews the session until it ends. Client.loops counts its goroutine.
func (s *session) keep() {
	timer := time.NewTimer(s.every)
	defer timer.Stop()
	for {
		select {
		case <-s.alive.Done():
			if s.client.runner.Draining.Err() == nil { // else Close does it
				s.giveUp(s.client.runner.Draining)
				s.client.sessions.forget(s)
			}
			return
		case <-s.client.runner.Life.Done():
			return // Close closes the session at the server
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

// closeAtServer closes the session at the server, unless a handler still runs under it or a report is in the spool. In
// these cases the session ends by its time to live, and until then no other caller acts.
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

// renew renews the session once and handles the attempts that the server lists as open. It returns false when no server
// answered.
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

// digest returns wire.OpenDigest of the attempts that this process holds or has reported to the spool.
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

// handleListing handles the attempts that a renewal lists as open.
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
			s.retire() // if the report does not end the attempt, the end of the session does
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unexpected = unexpected
}

// handleListed carries out the action for a listed attempt, on a goroutine that Close waits for. If it fails, the next
// renewal lists the attempt again.
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
			Error: "the holder of the session does not know this attempt"}
		report = r.AppendJSON(nil)
	}
	c.background(func() { _, _ = c.bring(c.runner.Life, c.reportRequest(o.key, report)) })
}

// cancel cancels the handlers' contexts of a flight whose cancellation was requested.
func (s *session) cancel(word string) {
	id, err := flight.ParseID(word)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.nonces {
		if o.cancel != nil && o.key.FlightID() == id {
			o.cancel(effect.ErrCancelRequested)
		}
	}
}
