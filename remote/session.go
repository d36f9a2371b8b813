package remote

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/lease"
)

// MaxListed is how many open attempts one renewal lists at most.
const MaxListed = 256

// NewSession creates a session for a caller that uses it for many attempts and renews it through any node.
func (s *Service) NewSession(ctx context.Context, ttl time.Duration, owner string) (SessionAnswer, error) {
	if err := checkTTL(ttl); err != nil {
		return SessionAnswer{}, err
	}
	if s.drainCtx.Err() != nil {
		return SessionAnswer{}, drainingError()
	}
	ctx, cancel := s.withRequestTimeout(ctx)
	defer cancel()
	session, err := s.cfg.Leases.NewSession(ctx, lease.Spec{TTL: ttl, Owner: owner})
	if err != nil {
		return SessionAnswer{}, s.leaseError(flight.Key{}, err)
	}
	return SessionAnswer{Session: session.Ref().ID, Trust: session.Trust(), RenewEvery: session.TTL() / renewalsPerTTL, OpenDigest: Digest(nil)}, nil
}

// Renew renews a session. It returns this node's view of the attempts open under the session, and the flights for which
// cancellation was requested. Renew changes nothing else: the caller may still act on attempts that it did not list.
// *effect.LeaseLost: the session has ended.
func (s *Service) Renew(ctx context.Context, id flight.SessionID, r RenewRequest) (SessionAnswer, error) {
	ctx, cancel := s.withRequestTimeout(ctx)
	defer cancel()
	session, trust, err := s.renew(ctx, id)
	if err != nil {
		return SessionAnswer{}, s.leaseError(flight.Key{}, err)
	}
	a := SessionAnswer{Session: id, Trust: trust, RenewEvery: session.TTL() / renewalsPerTTL}
	flights, err := s.openAttempts(id)
	if err != nil {
		return SessionAnswer{}, answer.Unavailable(flight.Key{}, err)
	}
	open := make([]OpenAttempt, len(flights))
	for i, f := range flights {
		if f.Cancel != nil {
			a.CancelRequested = append(a.CancelRequested, f.ID)
		}
		open[i] = OpenAttempt{Key: f.Key, FlightID: f.ID, Nonce: f.Newest().Nonce, Number: f.Newest().Number}
	}
	if a.OpenDigest = Digest(open); r.OpenDigest == "" || r.OpenDigest == a.OpenDigest {
		return a, nil
	}
	for i, f := range flights {
		switch {
		case slices.Compare(f.ID[:], r.After[:]) <= 0:
		case len(a.Open) == MaxListed:
			a.More = true
		default:
			open[i].FencingToken = s.writer.SealToken(f, f.Newest())
			a.Open = append(a.Open, open[i])
		}
	}
	return a, nil
}

// renew renews a session, whichever node created it or renewed it last.
func (s *Service) renew(ctx context.Context, id flight.SessionID) (session lease.Session, trust time.Duration, err error) {
	for range 2 { // this node's trust may end right now, while renewals through another node keep the session alive
		if session, err = s.cfg.Leases.Session(ctx, id); err == nil {
			trust, err = session.Renew(ctx)
		}
		if !errors.Is(err, lease.ErrLost) {
			break
		}
	}
	return session, trust, err
}

// openAttempts returns the flights with an attempt open under a session, ordered by id.
func (s *Service) openAttempts(id flight.SessionID) (open []*flight.Flight, err error) {
	_, n := s.cfg.Sessions.HeldBy(id, flight.ID{}, 0)
	held, _ := s.cfg.Sessions.HeldBy(id, flight.ID{}, n)
	for _, flightID := range held {
		f, err := s.cfg.Ledger.Flight(flightID)
		if err != nil {
			return nil, err
		}
		// Another held flight has a verification, or has ended since.
		if a := f.OpenAttempt(); a != nil && f.State == flight.StateRunning && a.Session.ID == id {
			open = append(open, f)
		}
	}
	return open, nil
}

// Digest is wire.OpenDigest of a list of open attempts.
func Digest(open []OpenAttempt) string {
	listed := make([]wire.OpenAttempt, len(open))
	for i, o := range open {
		listed[i] = wire.OpenAttempt{Nonce: hex.EncodeToString(o.Nonce[:]), Attempt: o.Number}
	}
	return wire.OpenDigest(listed)
}

// CloseSession ends a session and its claims; nil also if there is no such session. *effect.SessionInUse: the session holds
// attempts or verifications that were neither reported nor abandoned.
//
// The ledger decides, because an open under the session may be granted at the same moment. If the process dies after the
// ledger's answer, nothing opens under the session, and it expires in etcd.
func (s *Service) CloseSession(ctx context.Context, id flight.SessionID) error {
	ctx, cancel := s.withRequestTimeout(ctx)
	defer cancel()
	reply, err := s.propose(ctx, &flight.CloseSession{Session: id, StoreEpoch: s.cfg.Reader.Header().StoreEpoch})
	switch {
	case err != nil:
		return answer.Unavailable(flight.Key{}, err)
	case reply.Decision == flight.DecisionBusy:
		_, n := s.cfg.Sessions.HeldBy(id, flight.ID{}, 0)
		return &effect.SessionInUse{Session: id, Open: max(1, n)}
	case reply.Decision != flight.DecisionAccepted:
		return answer.Unavailable(flight.Key{}, errors.New("the ledger was restored meanwhile"))
	}
	return s.leaseError(flight.Key{}, s.cfg.Leases.EndSession(ctx, id))
}

// withRequestTimeout bounds requests to etcd, so that the caller gets an error if etcd does not answer. Its context outlives the caller's
// request, which also ends when the caller has closed its half of the connection.
func (s *Service) withRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.TTL/2)
}

// Prolong renews a session in etcd alone, where no node leads the ledger. It grants no trust and lists no attempts, so the owner
// starts nothing new; it only keeps the session, and with it the effects that run, from being ended. The digest of the open
// attempts is the caller's own. A session that is not found may have been created after this node's view of the ledger, so
// the error is never *effect.LeaseLost.
func Prolong(ctx context.Context, leases lease.Service, id flight.SessionID, r RenewRequest) (SessionAnswer, error) {
	s := Service{cfg: Config{Leases: leases}}
	session, _, err := s.renew(ctx, id)
	if err != nil {
		return SessionAnswer{}, answer.Unavailable(flight.Key{}, err)
	}
	a := SessionAnswer{Session: id, RenewEvery: session.TTL() / renewalsPerTTL, OpenDigest: r.OpenDigest}
	if a.OpenDigest == "" {
		a.OpenDigest = Digest(nil)
	}
	return a, nil
}
