package leasetest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/leasetest"
)

// TestLossesHaveAReason, and what is held can be counted.
func TestLossesHaveAReason(t *testing.T) {
	for want, lose := range map[string]func(t *testing.T, f *leasetest.Fake, id flight.SessionID){
		lease.LostExpired: func(t *testing.T, f *leasetest.Fake, _ flight.SessionID) { f.Freeze(); pass(ttl) },
		lease.LostRevoked: func(t *testing.T, f *leasetest.Fake, id flight.SessionID) { f.World.Expire(id); pass(ttl) },
		lease.LostEpoch:   func(t *testing.T, f *leasetest.Fake, _ flight.SessionID) { f.Ledger.RaiseEpoch(); pass(ttl) },
	} {
		t.Run(want, func(t *testing.T) {
			type end struct {
				reason string
				claims int
			}
			ended := make(chan end, 10)
			events := lease.Events{TermEnded: func(_ flight.SessionID, cause error, claims int) { ended <- end{lease.LostReason(cause), claims} }}
			bubble(t, leasetest.Options{Events: events, Tune: func(c *lease.Config) { c.Pool = -1 }}, func(t *testing.T, f *leasetest.Fake) {
				s := kept(t, f)
				take(t, s, key("1"))
				take(t, s, key("2")).Release()
				synctest.Wait()
				if claims, sessions := f.Held(); claims != 1 || sessions != 1 {
					t.Errorf("%d claims in %d sessions are held", claims, sessions)
				}
				lose(t, f, s.ID())
				if got := <-ended; got != (end{want, 1}) {
					t.Errorf("ended: %+v", got)
				}
				f.Thaw()
			})
			close(ended)
			for last := range ended {
				if last.reason != "" {
					t.Errorf("what is closed is not lost: %+v", last)
				}
			}
		})
	}
}

func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
