package leasetest_test

import (
	"testing"
	"testing/synctest"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease/leasetest"
)

// stage is the fake as the suite sees it.
type stage struct {
	world  *leasetest.World
	ledger *leasetest.Ledger
}

func (s *stage) Node(t testing.TB, o leasetest.Options) leasetest.Node {
	return leasetest.Open(t, s.world, s.ledger, o)
}
func (s *stage) Ledger() *leasetest.Ledger                { return s.ledger }
func (s *stage) Expire(_ testing.TB, id flight.SessionID) { s.world.Expire(id) }
func (s *stage) DropGuardKey(testing.TB)                  { s.world.SetGuardKey(nil) }

func TestFakeConforms(t *testing.T) {
	leasetest.Run(t, leasetest.Factory{
		Stage: func(testing.TB) leasetest.Stage {
			return &stage{leasetest.NewWorld(), leasetest.NewLedger()}
		},
		Within: synctest.Test,
	})
}
