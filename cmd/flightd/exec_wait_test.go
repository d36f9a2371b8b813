package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// noticesDuring returns the messages of a wait of this length.
func noticesDuring(t *testing.T, length, wait time.Duration, read func() (*client.Flight, error)) (said []string) {
	n := &waitNotices{key: flight.MustKey("default/exec/w"), wait: wait,
		say:  func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
		read: func(context.Context) (*client.Flight, error) { return read() },
	}
	n.start(t.Context())
	time.Sleep(length)
	n.stop()
	n.stop()
	time.Sleep(time.Hour)
	return said
}

func TestExec_WaitNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running := &client.Flight{State: flight.StateRunning.String(), LastAttempt: &wire.Attempt{Attempt: 2, Owner: "web-1:47\x1b", OpenedAt: wire.Time{Time: time.Now()}}}
		read := func() (*client.Flight, error) { return running, nil }
		require.Empty(t, noticesDuring(t, 1900*time.Millisecond, forever, read), "a short wait is silent")
		said := noticesDuring(t, 20*time.Second, 20*time.Second, read)
		require.Equal(t, []string{"default/exec/w: waiting for another caller: attempt 2 is held by web-1:47  since " +
			formatTime(running.LastAttempt.OpenedAt.Time) + "; exec waits at most 18s more (--wait 20s)"}, said)
		said = noticesDuring(t, 65*time.Second, forever, read)
		require.Len(t, said, 3, "after 2, 32 and 62 seconds")
		require.Contains(t, said[2], "--wait forever")
	})
}

// Without another holder there is nothing to print: exec waits for the server, which has its own messages.
func TestExec_WaitNoticesNeedAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, state := range []flight.State{flight.StateAbsent, flight.StateReady, flight.StateInDoubt, flight.StateSucceeded} {
			require.Empty(t, noticesDuring(t, time.Minute, forever, func() (*client.Flight, error) {
				return &client.Flight{State: state.String()}, nil
			}), state)
		}
		require.Empty(t, noticesDuring(t, time.Minute, forever, func() (*client.Flight, error) { return nil, errors.New("no server") }))
		for want, f := range map[string]client.Flight{
			"the provider is being asked":  {State: flight.StateRunning.String(), Verifying: true},
			"its attempt is open":          {State: flight.StateRunning.String()},
			"held by an unnamed caller":    {State: flight.StateWaiting.String(), LastAttempt: &wire.Attempt{Attempt: 1}},
			"attempt is scheduled for 202": {State: flight.StateScheduled.String(), NotBefore: wire.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
		} {
			require.Contains(t, holderOf(&f), want)
		}
	})
}

// exec itself prints the notice, and prints none once its own command runs.
func TestExec_SaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	shop := newShop(t, true)
	first := s.begin("exec", "--key", "w", "--", shop.path("pay.sh"))
	eventually(t, "it runs", 10*time.Second, func() bool { return len(shop.pids("started")) == 1 })
	r := s.flightd("exec", "--key", "w", "--wait", "3s", "--", shop.path("pay.sh"))
	require.Equal(t, exitBusy, r.code, "%v", r)
	require.Contains(t, r.err, fmt.Sprintf("default/exec/w: waiting for another caller: attempt 1 is held by %s since ", s.flight("w").LastAttempt.Owner))
	require.Contains(t, r.err, "; exec waits at most 1s more (--wait 3s)\n")
	shop.release()
	r = first.wait()
	require.Zero(t, r.code, "%v", r)
	require.NotContains(t, r.err, "waiting for")
}
