package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/clock"
)

// sessions holds the client's sessions. One session is current: new attempts are opened under it. A session that cannot
// take new attempts is retired, and renewed as long as its attempts need it.
//
// Until a client has performed an effect, it opens without a session, one call at a time. A replay needs no session and
// does not wait for one to be created. A command that performs one effect uses a session that the server makes for the
// open and ends with the report.
type sessions struct {
	client *Client

	mu                sync.Mutex // guards the fields below
	current           *session   // nil: none
	all               map[*session]struct{}
	creating          chan struct{} // closed when the creation of a session has ended; nil: none is being created
	sessionlessActive bool          // a call without a session is running
	performed         bool          // an effect was performed: from now on calls use a session
}

// currentSession returns the session for new attempts, or nil if there is none.
func (ss *sessions) currentSession() *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.current
}

// acquire returns the session for new attempts, and creates it if needed. It returns nil for a call without a session;
// if sessionless is true, the caller must call endSessionless at the call's end.
func (ss *sessions) acquire(ctx context.Context) (s *session, sessionless bool, err error) {
	for {
		ss.mu.Lock()
		switch {
		case ss.current != nil:
			s = ss.current
			ss.mu.Unlock()
			return s, false, nil
		case !ss.performed && !ss.sessionlessActive:
			ss.sessionlessActive = true
			ss.mu.Unlock()
			return nil, true, nil
		}
		if creating := ss.creating; creating != nil {
			ss.mu.Unlock()
			select {
			case <-creating:
				continue
			case <-ctx.Done():
				return nil, false, context.Cause(ctx)
			}
		}
		created := make(chan struct{})
		ss.creating = created
		ss.mu.Unlock()
		s, err := ss.create(ctx)
		ss.endCreate(s)
		close(created)
		if errors.As(err, new(*effect.Unavailable)) && ctx.Err() == nil {
			return nil, false, nil // a replay needs no session
		}
		return s, false, err
	}
}

// require returns the session for new attempts. Unlike acquire, it never returns nil without an error.
func (ss *sessions) require(ctx context.Context) (*session, error) {
	ss.mu.Lock()
	ss.performed = true
	ss.mu.Unlock()
	s, _, err := ss.acquire(ctx)
	if s == nil && err == nil {
		err = &effect.Unavailable{Code: "unreachable", Cause: errors.New("no session could be created")}
	}
	return s, err
}

// endCreate ends the creation of a session; s is nil when it failed. A session whose trust is already over does not
// become current.
func (ss *sessions) endCreate(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.creating, ss.current = nil, nil
	if s != nil && !s.isRetired() {
		ss.current = s
	}
}

// endSessionless ends a call without a session.
func (ss *sessions) endSessionless(performed bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.sessionlessActive, ss.performed = false, ss.performed || performed
}

// create makes a session at the server. The end of ctx does not interrupt the request: other calls wait for the
// session, and one whose answer is lost lives until its time to live is over.
func (ss *sessions) create(ctx context.Context) (*session, error) {
	c := ss.client
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(c.runner.BaseContext, cancel)()
	a, err := c.newSession(ctx, c.opts.times.sessionTTL, c.opts.owner, len(c.servers))
	if err != nil {
		return nil, err
	}
	return ss.add(a.Session, a.sentAt, a.TrustMS, a.RenewEveryMS, nil), nil
}

// adopt moves the opening to the session that the answer names, if that is another than the open's: it holds the
// attempt.
func (ss *sessions) adopt(a *OpenAnswer, o *opening) {
	if o.session != nil && o.session.id == a.Session {
		return
	}
	o.markUnknown() // removes it from the old session's table
	o.phase = phaseAwaited
	ss.add(a.Session, a.sentAt, a.TrustMS, a.RenewEveryMS, o)
}

// add starts to renew a session. only is the opening that a session of one attempt was made for, or nil for other
// sessions.
func (ss *sessions) add(id string, sent clock.Instant, trustMS, everyMS int64, only *opening) *session {
	s := &session{client: ss.client, id: id, oneShot: only != nil, retired: only != nil, nonces: make(map[string]*opening), handling: make(map[string]bool),
		renewEvery: time.Duration(everyMS) * time.Millisecond}
	if only != nil {
		s.track(only)
	}
	if s.renewEvery <= 0 {
		s.renewEvery = time.Second
	}
	s.renewCtx, s.stopRenewing = context.WithCancel(context.Background())
	s.leaseCtx, s.cancelLease = context.WithCancelCause(context.Background())
	s.trust.extend(sent, trustMS)
	s.trustTimer = time.AfterFunc(time.Hour, s.checkTrust) // long, so that s.watch is set before checkTrust runs
	s.trustTimer.Reset(s.trust.remaining())
	ss.mu.Lock()
	if ss.all == nil {
		ss.all = make(map[*session]struct{})
	}
	maps.DeleteFunc(ss.all, func(old *session, _ struct{}) bool {
		return old.leaseCtx.Err() != nil && old.renewCtx.Err() != nil && !old.acts()
	})
	ss.all[s] = struct{}{}
	ss.mu.Unlock()
	ss.client.loops.Go(s.renewLoop)
	return s
}

// retire ends new opens under s.
func (ss *sessions) retire(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.current == s {
		ss.current = nil
	}
}

// forget removes a session that is not renewed any more. If it was lost while an effect runs, it stays until add removes it.
func (ss *sessions) forget(s *session) {
	ss.retire(s)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if !s.acts() {
		delete(ss.all, s)
	}
}

// close stops all renewals and closes the sessions at the server. It runs when no call is left, or Close waits for
// none.
func (ss *sessions) close(ctx context.Context) {
	ss.mu.Lock()
	all := slices.Collect(maps.Keys(ss.all))
	ss.current = nil
	ss.mu.Unlock()
	for _, s := range all {
		s.stopRenewing()
		s.closeAtServer(ctx)
	}
}

// closeSessionTimeout bounds the request that closes a session, and the work of a Close whose ctx has ended.
const closeSessionTimeout = 2 * time.Second
