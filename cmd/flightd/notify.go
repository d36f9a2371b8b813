package main

import (
	"net"
	"strings"
)

// notifyEnv is the environment variable with the notification socket of systemd; see sd_notify(3).
const notifyEnv = "NOTIFY_SOCKET"

// notifySupervisor sends a state to the supervisor that started this process, if there is one. A failure is printed:
// systemd would take the service for one that never became ready.
func (a *app) notifySupervisor(state string) {
	name := a.env(notifyEnv)
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
		a.say("notify the supervisor of %s: %v", state, err)
	}
}
