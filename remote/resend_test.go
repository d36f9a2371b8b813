package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
)

// A caller that resends must know when the provider may have forgotten the idempotency key, because it acts after this
// answer.
func TestProceedSaysHowLongAResendMayStart(t *testing.T) {
	policy := flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: 100 * time.Second, AttemptTimeout: 10 * time.Second}
	const surely = 95*time.Second - 10*time.Second // minus the margin for a slow ledger clock, and the attempt's time-out
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		first := time.Now()
		a := proceed(t, fd, openOf("1", `{}`, policy, 1))
		require.Nil(t, a.ResendWithin, "the first attempt is no resend")
		sleep(t, 2*time.Second)

		// The second caller waits for the first one, and counts from its own request.
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			asked := time.Now()
			req := openOf("1", `{}`, policy, 2)
			req.Wait = 30 * time.Second
			b := proceed(t, fd, req)
			require.NotNil(t, b.ResendWithin)
			require.InDelta(t, float64(first.Add(surely).Sub(asked)), float64(*b.ResendWithin), float64(2*time.Millisecond))
			require.Greater(t, time.Since(asked), 4*time.Second)
		}()
		sleep(t, 5*time.Second)
		require.Equal(t, flight.StateReady, report(t, fd, a, flight.OutcomeUnknown, "").State)
		<-answered

		sleep(t, 10*time.Second)
		b := proceed(t, fd, openOf("1", `{}`, policy, 2))
		require.InDelta(t, float64(time.Until(first.Add(surely))), float64(*b.ResendWithin), float64(2*time.Millisecond), "a repeat gets the time that is left now")
		fd.Ledger.AdvanceWall(30 * time.Second)
		proceed(t, fd, openOf("2", `{}`, flight.Policy{}, 1)) // the ledger learns of the jump
		b = proceed(t, fd, openOf("1", `{}`, policy, 2))
		require.InDelta(t, float64(time.Until(first.Add(surely-30*time.Second))), float64(*b.ResendWithin), float64(2*time.Millisecond), "the later clock counts")
		fd.Ledger.AdvanceWall(time.Hour)
		proceed(t, fd, openOf("3", `{}`, flight.Policy{}, 1))
		b = proceed(t, fd, openOf("1", `{}`, policy, 2))
		require.Less(t, *b.ResendWithin, 2*time.Millisecond, "zero time left is not the same as no bound")

		hold := flight.Policy{ProviderWindow: time.Minute}
		report(t, fd, proceed(t, fd, openOf("4", `{}`, hold, 1)), flight.OutcomeUnknown, "")
		fd.Resolve(t, keyOf("4"), flight.FindingNotHappened, "", nil)
		require.Nil(t, proceed(t, fd, openOf("4", `{}`, hold, 2)).ResendWithin, "a person has decided")
	})
}
