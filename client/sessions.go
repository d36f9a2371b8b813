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

// sessions gives out the session that new attempts are opened under. There is one at a time; one that can no longer be
// trusted with new attempts is retired and lives on, renewed, for those it holds.
//
// A client that has not performed an effect yet opens without a session: a replay needs none, and must not wait for
// anything that is durable; and a command that does one thing is better off with a session that the server makes for
// it, ends with its report, and nobody asks for twice. Only one call at a time does so.
type sessions struct {
	client *Client

	mu       sync.Mutex
	current  *session
	all      map[*session]struct{}
	making   chan struct{} // closed when the session being made is there, or is not
	scouting bool          // a call without a session is on its way
	flown    bool          // an effect was performed: a session pays off
}

// get gives the session for new attempts, where there is one.
func (ss *sessions) get() *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.current
}

// use gives the session for new attempts, or nil for a call that goes without one; then scout says that back must be
// called at its end.
func (ss *sessions) use(ctx context.Context) (s *session, scout bool, err error) {
	for {
		ss.mu.Lock()
		switch {
		case ss.current != nil:
			s := ss.current
			ss.mu.Unlock()
			return s, false, nil
		case !ss.flown && !ss.scouting:
			ss.scouting = true
			ss.mu.Unlock()
			return nil, true, nil
		}
		if making := ss.making; making != nil {
			ss.mu.Unlock()
			select {
			case <-making:
				continue
			case <-ctx.Done():
				return nil, false, context.Cause(ctx)
			}
		}
		making := make(chan struct{})
		ss.making = making
		ss.mu.Unlock()
		s, err := ss.start(ctx)
		ss.made(s)
		close(making)
		var unavailable *effect.Unavailable
		if errors.As(err, &unavailable) && ctx.Err() == nil {
			return nil, false, nil // there may be a receipt, for which no session is needed
		}
		return s, false, err
	}
}

// made ends the making of a session; nil: there is none. One whose trust was over before it came is for nobody.
func (ss *sessions) made(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.making, ss.current = nil, nil
	if s != nil && !s.isRetired() {
		ss.current = s
	}
}

// back ends a call that went without a session.
func (ss *sessions) back(flown bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.scouting, ss.flown = false, ss.flown || flown
}

// start makes a session. If its answer is lost, the session ends by its time to live; so it does not end with the trip that
// wants it, which others may come after.
func (ss *sessions) start(ctx context.Context) (*session, error) {
	c := ss.client
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(c.runner.Life, cancel)()
	a, err := c.newSession(ctx, c.opts.ttl, c.opts.owner, len(c.servers))
	if err != nil {
		return nil, err
	}
	return ss.add(a.Session, a.sent, a.TrustMS, a.RenewEveryMS, nil), nil
}

// adopt lets the attempt be held by the session that an answer names, whichever session the open named: that is the one
// that keeps it.
func (ss *sessions) adopt(a *OpenAnswer, o *opening) {
	if o.session != nil && o.session.id == a.Session {
		return
	}
	o.become(phaseUnknown) // in the table of the other one
	o.phase = phaseAwaited
	ss.add(a.Session, a.sent, a.TrustMS, a.RenewEveryMS, o)
}

// add begins to renew a session. only is the nonce of the one attempt that it is for; nil: it is for many.
func (ss *sessions) add(id string, sent clock.Moment, trustMS, everyMS int64, only *opening) *session {
	s := &session{client: ss.client, id: id, oneShot: only != nil, retired: only != nil, nonces: make(map[string]*opening),
		every: time.Duration(everyMS) * time.Millisecond}
	if only != nil {
		s.track(only)
	}
	if s.every <= 0 {
		s.every = time.Second
	}
	s.alive, s.end = context.WithCancel(context.Background())
	s.dying, s.lost = context.WithCancelCause(context.Background())
	s.trust.extend(sent, trustMS)
	s.watch = time.AfterFunc(time.Hour, s.checkTrust) // far off, so that it finds itself
	s.watch.Reset(s.trust.left())
	ss.mu.Lock()
	if ss.all == nil {
		ss.all = make(map[*session]struct{})
	}
	ss.all[s] = struct{}{}
	ss.mu.Unlock()
	ss.client.idle.Go(s.keep)
	return s
}

// retire opens nothing under s any more.
func (ss *sessions) retire(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.current == s {
		ss.current = nil
	}
}

func (ss *sessions) forget(s *session) {
	ss.retire(s)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.all, s)
}

// close ends all sessions. Nothing is held under them any more, or nobody waits for it.
func (ss *sessions) close(ctx context.Context) {
	ss.mu.Lock()
	all := slices.Collect(maps.Keys(ss.all))
	ss.current = nil
	ss.mu.Unlock()
	for _, s := range all {
		s.end()
		s.giveUp(ctx)
	}
}

// closePatience is how long a session that is given up is worth a request.
const closePatience = 2 * time.Second
