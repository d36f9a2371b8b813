package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/strictjson"
)

// session is a session at the server, and the nonces that were sent under it.
type session struct {
	client       *Client
	id           string
	oneShot      bool // made by the server for one open; it ends with the attempt
	renewEvery   time.Duration
	trust        trustWindow
	trustTimer   *time.Timer     // fires when trust should be over
	leaseCtx     context.Context // ends when effects may no longer start
	cancelLease  context.CancelCauseFunc
	renewCtx     context.Context // ends when the session is no longer renewed
	stopRenewing context.CancelFunc

	renewMu  sync.Mutex    // held by the one renewal at a time; handleListing compares a listing with the one before it
	renewed  bool          // result of the newest renewal; guarded by renewMu
	renewals atomic.Uint64 // how many renewals have begun

	mu               sync.Mutex          // guards the fields below, and the lower half of each opening in nonces
	nonces           map[string]*opening // by wire.NonceHex, as renewals list them
	unexpectedBefore map[string]bool     // nonces that the previous renewal listed unexpectedly
	handling         map[string]bool     // nonces of listed attempts whose report or abandon is being sent
	retired          bool                // no new opens
	listedAt         clock.Instant       // when the last renewal was sent whose list was read
	claims           []*sentClaim        // of which a copy may still open attempts
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
	over, full := s.retired && !s.isNeeded((*opening).needsSession), !s.retired && len(s.nonces) > maxNonces
	s.mu.Unlock()
	switch {
	case over:
		s.stopRenewing()
	case full:
		s.retire()
	}
}

// anyNonce reports whether match holds for one of the nonces. The caller holds s.mu.
func (s *session) anyNonce(kind func(*opening) bool) bool {
	for _, o := range s.nonces {
		if kind(o) {
			return true
		}
	}
	return false
}

func (o *opening) markUnknown() { o.update(func() { o.phase = phaseUnknown }) }

// keepUntilReported keeps the attempt's session alive while the report is in the spool, so that no other caller acts
// before the report is sent. The session is retired, and ends when it holds no other attempts and no unsent reports.
func (o *opening) keepUntilReported(report string) {
	o.update(func() { o.phase, o.reportFile, o.spooledAt, o.cancel = phaseSpooled, report, time.Now(), nil })
	o.session.retire()
}

// replaceReport removes the report from the spool that says that the outcome of a handler that hung is unknown. The handler has ended, and its
// own report is the named file in the spool; "": it was accepted.
func (o *opening) replaceReport(file string) {
	var unknown string
	o.update(func() { unknown, o.reportFile = o.reportFile, file })
	if unknown != "" {
		o.client.spool.remove(unknown, o.key.String())
	}
}

// acknowledge records that the ledger has stored the attempt's report. A report of not_done is kept: if an old renewal
// answer lists the attempt once more, the report is repeated, instead of an unknown outcome that would put the flight
// in doubt.
func (o *opening) acknowledge(r *ReportRequest) {
	if r.Outcome != flight.OutcomeNotDone.String() {
		o.markUnknown()
		return
	}
	body := strictjson.Append(nil, &r)
	o.update(func() { o.phase, o.report, o.cancel = phaseReported, body, nil })
}

// maxReportHold bounds how long a session is renewed for a report in the spool.
const maxReportHold = 10 * time.Minute

// isSpooled reports whether the attempt's report is still in the spool.
func (o *opening) isSpooled(p *spool) bool { return o.phase == phaseSpooled && p.has(o.reportFile) }

// holdsSessionForReport reports whether the session has to stay alive for that report.
func (o *opening) holdsSessionForReport(p *spool) bool {
	return time.Since(o.spooledAt) < maxReportHold && o.isSpooled(p)
}

// isObsolete reports whether the session is retired and its nonces and reports no longer need it.
func (s *session) isObsolete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired && !s.isNeeded(func(o *opening) bool {
		return o.needsSession() && o.phase != phaseSpooled || o.holdsSessionForReport(s.client.spool)
	})
}

// acts reports whether an effect may run under the session, or waits for its report to be stored.
func (s *session) acts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.anyNonce(func(o *opening) bool { return o.phase == phaseHeld || o.holdsSessionForReport(s.client.spool) })
}

// Trust returns how long effects may still be started under the session.
func (s *session) Trust() time.Duration {
	if s.leaseCtx.Err() != nil {
		return 0
	}
	return s.trust.remaining()
}

// checkTrust runs when trust should be over. Unless a renewal has extended trust, the session is lost.
func (s *session) checkTrust() {
	switch left := s.trust.remaining(); {
	case left > 0:
		s.trustTimer.Reset(left)
	case s.renewCtx.Err() == nil || s.acts():
		s.markLost()
	}
}

// markLost ends the right to start effects under the session. No renewal lists its attempts any more, so the nonces
// that were left are abandoned.
func (s *session) markLost() {
	s.retire()
	s.cancelLease(effect.ErrLeaseLost)
	for _, o := range s.takeLeft() {
		s.client.left.add(o)
	}
}

// takeLeft returns the nonces that were left, and whose not_after had not passed at the last renewal: a copy of their opens
// may have opened an attempt since. It returns each nonce once.
func (s *session) takeLeft() (left []*opening) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.nonces {
		if o.left && o.expiresAt.After(s.listedAt.Time) {
			o.left = false
			left = append(left, o)
		}
	}
	return left
}

// retire ends new opens under the session. The mark is set before sessions.retire runs: a concurrent endCreate either
// sees the mark, or has made the session current before, and sessions.retire removes it.
func (s *session) retire() {
	s.mu.Lock()
	s.retired = true
	over := !s.isNeeded((*opening).needsSession)
	s.mu.Unlock()
	s.client.sessions.retire(s)
	if over {
		s.stopRenewing()
	}
}

func (s *session) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// renewLoop renews the session until it ends. Client.loops counts its goroutine.
func (s *session) renewLoop() {
	timer := time.NewTimer(s.renewEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.renewCtx.Done():
			if s.client.runner.DrainContext.Err() == nil { // else Close does it
				s.closeAtServer(s.client.runner.DrainContext)
				s.client.sessions.forget(s)
			}
			return
		case <-s.client.runner.BaseContext.Done():
			return // Close closes the session at the server
		case <-timer.C:
		}
		if s.isObsolete() {
			s.stopRenewing()
			continue
		}
		next := s.renewEvery
		if !s.renew() {
			next = min(next, maxRetryPause)
		}
		timer.Reset(next)
	}
}

// closeAtServer closes the session at the server, unless a handler still runs under it or a report is in the spool. In
// these cases the session ends by its time to live, and until then no other caller acts.
func (s *session) closeAtServer(ctx context.Context) {
	if s.acts() || s.oneShot || s.leaseCtx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeSessionTimeout)
	defer cancel()
	if err := s.client.CloseSession(ctx, s.id); CodeOf(err) != wire.SessionInUse {
		return // after an error it ends by its time to live
	}
	var abandons sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, o := range append(s.takeLeft(), s.openedByLostClaims(ctx)...) {
		slots <- struct{}{}
		abandons.Go(func() {
			o.tryAbandon(ctx)
			<-slots
		})
	}
	abandons.Wait()
	_ = s.client.CloseSession(ctx, s.id)
}

// openedByLostClaims asks the server for what claims without an answer have opened.
func (s *session) openedByLostClaims(ctx context.Context) (opened []*opening) {
	listed, _, _ := s.askRenewal(ctx, closeSessionTimeout) // after an error, what the pages before it list
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range listed {
		key, err := flight.ParseStoredKey(listed[i].Key)
		if err != nil || s.nonces[listed[i].Nonce] != nil {
			continue
		}
		if o := s.openingOfClaim(key, listed[i].Nonce); o != nil && o.phase == phaseGivenUp {
			opened = append(opened, o)
		}
	}
	return opened
}

// renew renews the session once. It returns false when no server answered. Callers that come while a renewal runs share the
// next one.
func (s *session) renew() bool {
	before := s.renewals.Load()
	s.renewMu.Lock()
	defer s.renewMu.Unlock()
	if s.renewals.Load() == before {
		s.renewals.Add(1)
		s.renewed = s.renewOnce()
	}
	return s.renewed
}

// renewOnce renews the session and handles the attempts that the server lists as open.
func (s *session) renewOnce() bool {
	open, asked, err := s.askRenewal(s.client.runner.BaseContext, max(s.renewEvery/2, time.Second))
	if errors.As(err, new(*effect.LeaseLost)) {
		s.markLost()
		s.stopRenewing()
		return true
	}
	if err != nil {
		return false
	}
	s.handleListing(open, asked)
	return true
}

// askRenewal renews the session at the server, and returns the attempts that are listed as open, of all pages until an error, and when it
// asked.
func (s *session) askRenewal(ctx context.Context, timeout time.Duration) (open []wire.OpenAttempt, asked clock.Instant, err error) {
	ask := RenewRequest{OpenDigest: s.digest()}
	asked = clock.Now()
	for more := true; more; {
		a, err := s.client.renew(ctx, s.id, ask, timeout, 1)
		if err != nil {
			return open, asked, err
		}
		s.trust.extend(a.sentAt, a.TrustMS)
		for _, id := range a.CancelRequested {
			s.cancelAttempts(id)
		}
		open = append(open, a.Open...)
		if more = a.More && len(a.Open) > 0 && open[len(open)-1].FlightID != ask.After; more {
			ask.After = open[len(open)-1].FlightID
		}
	}
	return open, asked, nil
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

// handleListing handles the attempts that a renewal lists as open. asked is when the renewal was sent.
func (s *session) handleListing(open []wire.OpenAttempt, asked clock.Instant) {
	unexpected := make(map[string]bool)
	for i := range open {
		attempt := &open[i]
		key, err := flight.ParseStoredKey(attempt.Key)
		if err != nil || key.FlightID().String() != attempt.FlightID {
			continue
		}
		s.mu.Lock()
		o := s.nonces[attempt.Nonce]
		if o == nil {
			o = s.openingOfClaim(key, attempt.Nonce)
		}
		if o == nil {
			o = &opening{key: key}
		}
		spooled := o.isSpooled(s.client.spool)
		if !mayBeOpen(o.phase, spooled) {
			unexpected[attempt.Nonce] = true
		}
		action := listedActionFor(o.phase, spooled, s.unexpectedBefore[attempt.Nonce])
		if o.abandoning || o.key != key || s.handling[attempt.Nonce] {
			action = doNothing
		}
		if action != doNothing {
			s.handling[attempt.Nonce] = true
		}
		s.mu.Unlock()
		s.handleListed(action, o, attempt, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.handling, attempt.Nonce)
		})
		if action == repeatReport || action == reportUnknown {
			s.retire() // if the report does not end the attempt, the end of the session does
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unexpectedBefore, s.listedAt = unexpected, asked
}

// handleListed carries out the action for a listed attempt, on a goroutine that Close waits for, and calls done. If the
// action fails, the next renewal lists the attempt again.
func (s *session) handleListed(action listedAction, o *opening, attempt *wire.OpenAttempt, done func()) {
	c, report := s.client, o.report
	switch action {
	case doNothing:
		return
	case abandonAttempt:
		c.goWork(func() {
			defer done()
			o.tryAbandon(c.runner.BaseContext)
		})
		return
	case reportUnknown:
		r := ReportRequest{FencingToken: attempt.FencingToken, Key: attempt.Key, Outcome: flight.OutcomeUnknown.String(),
			Error: "the holder of the session does not know this attempt"}
		report = strictjson.Append(nil, &r)
	}
	c.goWork(func() {
		defer done()
		_, _ = c.ask(c.runner.BaseContext, c.newReportRequest(o.key, report))
	})
}

// cancelAttempts cancels the handlers' contexts of a flight whose cancellation was requested.
func (s *session) cancelAttempts(word string) {
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
