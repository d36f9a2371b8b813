package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// notifySupervisor sends a state to the supervisor that started this process, if there is one. A failure is printed:
// systemd would take the service for one that never became ready.
func notifySupervisor(a *cli.App, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.Say("notify the supervisor of %s: %v", state, err)
	}
}

// watchdogInterval returns how often the node has to prove to its supervisor that it is alive: a third of the time after
// which systemd kills it, so that one slow proof is in time. It returns 0 if the supervisor has no watchdog for this process.
func watchdogInterval() time.Duration {
	bound, err := daemon.SdWatchdogEnabled(false)
	if err != nil || bound <= 0 {
		return 0
	}
	return max(bound/3, time.Millisecond)
}

// feedWatchdog notifies the supervisor in each interval in which the node is alive, until ctx ends.
func feedWatchdog(ctx context.Context, every time.Duration, alive func(context.Context) error, notify func(state string), log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, every)
		err := alive(bounded)
		cancel()
		switch {
		case ctx.Err() != nil: // the node is stopping
		case err != nil:
			log.Error("not alive: the supervisor is not notified, and will restart the node if this goes on", "error", err)
		default:
			notify("WATCHDOG=1")
		}
	}
}
