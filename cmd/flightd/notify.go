package main

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// notifyEnv is the environment variable with the notification socket of systemd; see sd_notify(3).
const notifyEnv = "NOTIFY_SOCKET"

// notifySupervisor sends a state to the supervisor that started this process, if there is one. A failure is printed:
// systemd would take the service for one that never became ready.
func notifySupervisor(a *cli.App, state string) {
	name := a.Env(notifyEnv)
	if name == "" {
		return
	}
	if abstract, ok := strings.CutPrefix(name, "@"); ok {
		name = "\x00" + abstract
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		a.Say("notify the supervisor of %s: %v", state, err)
	}
}

// watchdogInterval returns how often the node has to prove to its supervisor that it is alive: a third of the time after
// which systemd kills it, so that one slow proof is in time. 0: the supervisor has no watchdog for this process.
func watchdogInterval(a *cli.App, pid int) time.Duration {
	if of := a.Env("WATCHDOG_PID"); of != "" && of != strconv.Itoa(pid) {
		return 0
	}
	bound, err := strconv.ParseInt(a.Env("WATCHDOG_USEC"), 10, 64)
	if err != nil || bound <= 0 {
		return 0
	}
	return max(time.Duration(bound)*time.Microsecond/3, time.Millisecond)
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
