package main

import (
	"net"
	"strings"
)

// notifyEnv names the socket on which systemd hears that a service is ready, as sd_notify(3) has it.
const notifyEnv = "NOTIFY_SOCKET"

// tellSupervisor tells whoever started this process how it stands. Without a supervisor that listens it does nothing;
// one that cannot be told is said so, since it will take the service for one that never came up.
func (a *app) tellSupervisor(state string) {
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
		a.say("the supervisor cannot be told that %s: %v", state, err)
	}
}
