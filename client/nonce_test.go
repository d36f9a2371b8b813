package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/runner"
)

// Every phase, whether the report waits in the spool, and whether the attempt was listed before.
func TestDutyOf(t *testing.T) {
	const n, a, r, u = doNothing, abandonAttempt, repeatReport, reportUnknown
	table := map[phase][4]listedAction{ // neither; listed before; in the spool; both
		phaseUnknown:  {n, u, n, u},
		phaseAwaited:  {n, n, n, n},
		phaseHeld:     {n, n, n, n},
		phaseSpooled:  {n, u, n, n},
		phaseReported: {n, r, n, r},
		phaseGivenUp:  {a, a, a, a},
	}
	require.Len(t, table, int(phaseGivenUp)+1)
	for p, row := range table {
		for i, want := range row {
			require.Equal(t, want, listedActionFor(p, i&2 != 0, i&1 != 0), "phase %d, case %d", p, i)
		}
	}
}

// An answer is final if the ledger has decided about the nonce, or if its open cannot have been proposed. An answer that
// does not name the nonce may be the answer to another open of the flight.
func TestIsFinal(t *testing.T) {
	key := flight.MustKey("default/charge/1")
	always := []Code{wire.Conflict, wire.Expired, wire.OpenExpired}
	alone := []Code{wire.KeyRequired, wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound, wire.MethodNotAllowed,
		wire.Unauthenticated, wire.Forbidden, wire.WrongDeployment}
	yes, no := true, false
	for _, class := range wire.Classes() {
		for _, proposed := range []*bool{nil, &no, &yes} {
			for _, only := range []bool{false, true} {
				err := newError(Problem{Code: class.Code, Status: class.Status, Proposed: proposed}, key)
				unproposed := false
				var want bool
				switch {
				case slices.Contains(alone, class.Code):
					want = only
				case slices.Contains(always, class.Code):
					want = true
				case class.Code == wire.InDoubt && proposed != nil:
					want, unproposed = *proposed, !*proposed
				case class.Code == wire.InFlight && proposed != nil:
					unproposed = !*proposed
				}
				require.Equal(t, want, isFinal(&OpenAnswer{}, err, only), "%s, proposed %v, only %t", class.Code, proposed, only)
				require.Equal(t, unproposed, isUnproposed(err), "%s, proposed %v", class.Code, proposed)
			}
		}
	}
	for _, only := range []bool{false, true} {
		require.False(t, isFinal(&OpenAnswer{}, context.Canceled, only))
		require.False(t, isFinal(&OpenAnswer{}, &effect.Unavailable{Code: "unreachable"}, only))
		for decision, want := range map[string]bool{wire.DecisionReplay: true, wire.DecisionProceed: false, wire.DecisionVerify: false} {
			require.Equal(t, want, isFinal(&OpenAnswer{OpenAnswer: wire.OpenAnswer{Decision: decision}}, nil, only))
		}
	}
}

// The ledger's time advances between answers. An answer sets it ahead, and only the exact time sets it back.
func TestLedgerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l ledgerClock
		require.Zero(t, l.notAfter(30*time.Second), "no answer has named it")
		l.set(1_000_000, false)
		require.EqualValues(t, 1_030_000, l.notAfter(30*time.Second))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1_090_000, l.notAfter(30*time.Second))
		l.set(0, false)
		l.set(1_059_000, false)
		require.EqualValues(t, 1_090_000, l.notAfter(30*time.Second), "the estimate is later")
		time.Sleep(time.Second)
		require.EqualValues(t, 1_091_000, l.notAfter(30*time.Second))
		l.set(2_000_000, false)
		require.EqualValues(t, 2_030_000, l.notAfter(30*time.Second))
		l.set(1_500_000, true)
		require.EqualValues(t, 1_530_000, l.notAfter(30*time.Second), "the open was rejected by this time")
	})
}

// newSessionWithTable returns a session of a client without a server.
func newSessionWithTable(t *testing.T) (*Client, *session) {
	o, err := newOptions([]Option{WithoutSpool()})
	require.NoError(t, err)
	c := &Client{requester: requester{opts: o}}
	c.runner = runner.New(transport{c}, o.times.hungAfter)
	c.sessions.client = c
	c.spool, err = openSpool("", o.logger)
	require.NoError(t, err)
	s := &session{client: c, nonces: map[string]*opening{}, handling: map[string]bool{}}
	s.renewCtx, s.stopRenewing = context.WithCancel(t.Context())
	return c, s
}

// The digest is over the attempts that are open for all that the client knows.
func TestDigest(t *testing.T) {
	c, s := newSessionWithTable(t)
	key := flight.MustKey("default/charge/1")
	var open []wire.OpenAttempt
	for i := range 6 {
		o := newOpening(c, &effect.Call{Key: key}, time.Time{})
		require.True(t, s.track(o))
		o.update(func() { o.phase, o.number = phase(i), uint32(i) })
		if o.phase == phaseHeld || o.phase == phaseSpooled {
			open = append(open, wire.OpenAttempt{Nonce: wire.NonceHex(o.nonce), Attempt: uint32(i)})
		}
	}
	require.Len(t, s.nonces, 5, "what is unknown has left the table")
	require.Equal(t, wire.OpenDigest(open), s.digest())
}

// A session lives for the attempts that it holds and for running abandons. Its table is bounded.
func TestTableOfNonces(t *testing.T) {
	c, s := newSessionWithTable(t)
	key := flight.MustKey("default/charge/1")
	running, left := newOpening(c, &effect.Call{Key: key}, time.Time{}), newOpening(c, &effect.Call{Key: key}, time.Time{})
	require.True(t, s.track(running))
	require.True(t, s.track(left))
	left.update(func() { left.phase, left.abandoning = phaseGivenUp, true })
	for i := range maxNonces - 1 {
		require.False(t, s.isRetired(), i)
		o := newOpening(c, &effect.Call{Key: key}, time.Time{})
		require.True(t, s.track(o))
		o.markGivenUp()
	}
	require.True(t, s.isRetired(), "the table is full")
	require.False(t, s.track(newOpening(c, &effect.Call{Key: key}, time.Time{})))
	running.acknowledge(&ReportRequest{Outcome: "succeeded"})
	require.NoError(t, s.renewCtx.Err(), "an abandon is on its way")
	left.update(func() { left.abandoning, left.left = false, true })
	require.NoError(t, s.renewCtx.Err(), "a copy of its open may still open an attempt, which a renewal lists")
	left.update(func() { left.expiresAt = clock.Now() })
	require.NoError(t, s.renewCtx.Err(), "the copy may have arrived since the last renewal")
	left.update(func() { s.listedAt = clock.Now() })
	require.Error(t, s.renewCtx.Err())
	require.Len(t, s.nonces, maxNonces, "nonces that were given up stay")
}

// A report is rejected for good only by an answer that names its flight, with a code of the report route. Other
// answers, mixed up by a proxy or from other software, are not final.
func TestReportResult(t *testing.T) {
	key := flight.MustKey("default/charge/1")
	final := []Code{wire.KeyInvalid, wire.InputInvalid, wire.PayloadTooLarge, wire.NotFound}
	for _, class := range wire.Classes() {
		for _, id := range []string{"", key.FlightID().String()} {
			want := reportLater
			switch {
			case id == "":
			case class.Code == wire.Fenced:
				want = reportTaken
			case slices.Contains(final, class.Code):
				want = reportRejected
			}
			require.Equal(t, want, reportResultOf(newError(Problem{Code: class.Code, Status: class.Status, FlightID: id}, key)), "%s, id %q", class.Code, id)
		}
	}
	require.Equal(t, reportTaken, reportResultOf(nil))
	require.Equal(t, reportLater, reportResultOf(&effect.Unavailable{Code: "unreachable"}))
}

// The time in which a resend may still be sent counts from when the request was sent that was answered, like trust.
func TestResendCountsFromTheRequest(t *testing.T) {
	c, s := newSessionWithTable(t)
	s.id = "ses_1"
	o := newOpening(c, &effect.Call{Key: flight.MustKey("default/charge/1")}, time.Time{})
	require.True(t, s.track(o))
	sent := clock.Now().Add(-time.Minute)
	ms := int64(90_000)
	a := &OpenAnswer{OpenAnswer: wire.OpenAnswer{Session: s.id, ResendMS: &ms}, sentAt: sent}
	require.Equal(t, sent.Add(90*time.Second), o.grantedAnswer(runner.DecisionProceed, a).ResendUntil)
	a.ResendMS = nil
	require.True(t, o.grantedAnswer(runner.DecisionProceed, a).ResendUntil.IsZero(), "no bound")
}

// An answer that is not flightd's is reported as unreachable once, however often it is wrapped.
func TestUnavailableError_HasItsCodeOnce(t *testing.T) {
	err := unavailableError(t.Context(), &effect.Unavailable{Code: "unreachable", Cause: context.DeadlineExceeded})
	require.EqualError(t, err, "unreachable: context deadline exceeded")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
