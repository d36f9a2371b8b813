package exec

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
)

// Times of the messages while exec waits for another holder of its key.
const (
	firstWaitNotice = 2 * time.Second
	waitNoticeEvery = 30 * time.Second
)

// waitNotices prints, while exec waits for a key, which process holds the key and how long exec waits at most.
type waitNotices struct {
	key  flight.Key
	wait time.Duration // of --wait; forever: no bound
	say  func(format string, args ...any)
	read func(context.Context) (*client.Flight, error)

	cancel context.CancelFunc
	done   sync.WaitGroup // the goroutine of start
}

// start starts the goroutine that prints; stop waits for it.
func (n *waitNotices) start(ctx context.Context) {
	ctx, n.cancel = context.WithCancel(ctx)
	n.done.Go(func() { n.run(ctx) })
}

// stop ends the messages; none is printed after it returns. It may be called more than once, and on nil.
func (n *waitNotices) stop() {
	if n != nil {
		n.cancel()
		n.done.Wait()
	}
}

// run prints a message after firstWaitNotice and then every waitNoticeEvery, until ctx ends. It prints none if the
// flight cannot be read or no other caller holds it.
func (n *waitNotices) run(ctx context.Context) {
	started := time.Now()
	timer := time.NewTimer(firstWaitNotice)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		f, err := n.read(ctx)
		if state := holderOf(f); err == nil && state != "" && ctx.Err() == nil {
			n.say("%s: waiting for another caller: %s; %s", n.key, state, n.bound(time.Since(started)))
		}
		timer.Reset(waitNoticeEvery)
	}
}

// bound describes how much longer exec waits.
func (n *waitNotices) bound(waited time.Duration) string {
	if n.wait == cli.Forever {
		return "exec waits until the other caller has ended (--wait forever)"
	}
	return fmt.Sprintf("exec waits at most %v more (--wait %v)", max(n.wait-waited, 0).Round(time.Second), n.wait)
}

// holderOf describes who holds a flight, or returns "" if no caller does.
func holderOf(f *client.Flight) string {
	switch {
	case f == nil:
		return ""
	case f.State == flight.StateScheduled.String():
		return "its next attempt is scheduled for " + cli.FormatTime(f.NotBefore.Time)
	case f.State != flight.StateRunning.String() && f.State != flight.StateWaiting.String():
		return ""
	case f.Verifying:
		return "the provider is being asked whether the effect happened"
	case f.LastAttempt == nil:
		return "its attempt is open"
	}
	return fmt.Sprintf("attempt %d is held by %s since %s", f.LastAttempt.Attempt, cli.OneLine(cmp.Or(f.LastAttempt.Owner, "an unnamed caller")), cli.FormatTime(f.LastAttempt.OpenedAt.Time))
}
