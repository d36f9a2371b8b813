package leasetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// backend implements leasetest.Backend with fakes.
type backend struct {
	etcd   *leasetest.Etcd
	ledger *leasetest.Ledger
}

func (b *backend) Node(t testing.TB, o leasetest.Options) leasetest.Node {
	return leasetest.Open(t, b.etcd, b.ledger, o)
}
func (b *backend) Ledger() *leasetest.Ledger                { return b.ledger }
func (b *backend) Expire(_ testing.TB, id flight.SessionID) { b.etcd.Expire(id) }
func (b *backend) DropGuardKey(testing.TB)                  { b.etcd.SetGuardKey(nil) }
func (b *backend) SetCounter(_ testing.TB, n uint64)        { b.etcd.SetCounter(n) }
func (b *backend) MarkedOneShot(_ testing.TB, id flight.SessionID) bool {
	m := b.etcd.SessionKey(id)
	return m != nil && m.Session.OneShot
}

func TestFakeConforms(t *testing.T) {
	leasetest.Run(t, leasetest.Factory{
		Backend: func(testing.TB) leasetest.Backend {
			return &backend{leasetest.NewEtcd(), leasetest.NewLedger()}
		},
		Within: synctest.Test,
	})
}

// The tests of the fake use virtual time, so they may wait for hours.

const ttl = 15 * time.Second

// trustFor is the window of a session after a renewal.
const trustFor = ttl - ttl/5

func key(id string) flight.Key { return flight.MustKey("test/charge/" + id) }

func inBubble(t *testing.T, o leasetest.Options, run func(t *testing.T, f *leasetest.Fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, leasetest.New(t, o)) })
}

func localSession(t *testing.T, f *leasetest.Fake) lease.Session {
	t.Helper()
	return newSession(t, f, lease.Spec{TTL: ttl, Owner: "a:1", AutoRenew: true})
}

func newSession(t *testing.T, f *leasetest.Fake, spec lease.Spec) lease.Session {
	t.Helper()
	s, err := f.NewSession(t.Context(), spec)
	require.NoError(t, err)
	return s
}

func reserve(t *testing.T, s lease.Session, k flight.Key) lease.Lease {
	t.Helper()
	l, err := s.Reserve(t.Context(), k, leasetest.NewNonce())
	require.NoError(t, err)
	return l
}

func claim(t *testing.T, s lease.Session, k flight.Key) lease.Lease {
	t.Helper()
	l := reserve(t, s, k)
	require.NoError(t, l.Claim(t.Context()))
	return l
}

func claims(t *testing.T, f *leasetest.Fake) []lease.ListedClaim {
	t.Helper()
	all, err := f.Claims(t.Context())
	require.NoError(t, err)
	return all
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
