package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/answer"
	"github.com/flightd/flightd/lease"
)

// MaxListed is how many open attempts one renewal lists at most.
const MaxListed = 256

// NewSession makes a session for a caller that keeps it for many attempts and renews it itself, through any node.
func (s *Service) NewSession(ctx context.Context, ttl time.Duration, owner string) (SessionAnswer, error) {
	if err := checkTTL(ttl); err != nil {
		return SessionAnswer{}, err
	}
	if s.serving.Err() != nil {
		return SessionAnswer{}, errDraining()
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	session, err := s.cfg.Leases.NewSession(ctx, lease.Spec{TTL: ttl, Owner: owner})
	if err != nil {
		return SessionAnswer{}, leaseError(flight.Key{}, err)
	}
	return SessionAnswer{Session: session.Ref().ID, Trust: session.Trust(), RenewEvery: session.TTL() / renewals, OpenDigest: Digest(nil)}, nil
}

// Renew prolongs a session, and tells what is open under it as this node knows it, and which attempts somebody wants
// cancelled. It changes nothing else: what the caller does not list it may still act on. *effect.LeaseLost: the session has
// ended.
func (s *Service) Renew(ctx context.Context, id flight.SessionID, r Renewal) (SessionAnswer, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	session, trust, err := s.renew(ctx, id)
	if err != nil {
		return SessionAnswer{}, leaseError(flight.Key{}, err)
	}
	a := SessionAnswer{Session: id, Trust: trust, RenewEvery: session.TTL() / renewals}
	flights, err := s.openUnder(id)
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

// renew renews a session, whichever node made it or renewed it last.
func (s *Service) renew(ctx context.Context, id flight.SessionID) (session lease.Session, trust time.Duration, err error) {
	for range 2 { // this node's trust may end at this moment, while the session lives by renewals through another one
		if session, err = s.cfg.Leases.Session(ctx, id); err == nil {
			trust, err = session.Renew(ctx)
		}
		if !errors.Is(err, lease.ErrLost) {
			break
		}
	}
	return session, trust, err
}

// openUnder gives the flights with an attempt open under a session, in the order of their ids.
func (s *Service) openUnder(id flight.SessionID) (open []*flight.Flight, err error) {
	_, n := s.cfg.Sessions.HeldBy(id, flight.ID{}, 0)
	held, _ := s.cfg.Sessions.HeldBy(id, flight.ID{}, n)
	for _, flightID := range held {
		f, err := s.cfg.Ledger.Flight(flightID)
		if err != nil {
			return nil, err
		}
		if a := f.OpenAttempt(); a != nil && f.State == flight.Running && a.Session.ID == id { // else it looks, or has ended since
			open = append(open, f)
		}
	}
	return open, nil
}

// Digest is the same for two lists of open attempts that name the same nonces and numbers: the first 16 bytes, in hex, of
// SHA-256 over the lines "<nonce in hex> <number>\n" in the order of their bytes.
func Digest(open []OpenAttempt) string {
	lines := make([]string, len(open))
	for i, o := range open {
		lines[i] = fmt.Sprintf("%x %d\n", o.Nonce, o.Number)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:16])
}

// CloseSession ends a session, with its claims. *effect.SessionInUse: attempts or look-ups under it were neither reported nor
// abandoned, as far as this node knows. nil also where there is no such session.
func (s *Service) CloseSession(ctx context.Context, id flight.SessionID) error {
	if _, n := s.cfg.Sessions.HeldBy(id, flight.ID{}, 0); n > 0 {
		return &effect.SessionInUse{Session: id, Open: n}
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return leaseError(flight.Key{}, s.cfg.Leases.EndSession(ctx, id))
}

// bounded bounds what is asked of etcd, so that its absence is said and not waited for.
func (s *Service) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.TTL/2)
}
