#!/bin/sh
# Makes the user of the service and its directory. It makes no ledger and starts nothing; an upgrade restarts nothing, because a
# newer version may raise the feature level, and the nodes of a cluster are restarted one after the other.
set -e
getent passwd flightd >/dev/null || useradd --system --user-group --no-create-home --home-dir /var/lib/flightd --shell /usr/sbin/nologin flightd
install -d -o flightd -g flightd -m 0700 /var/lib/flightd
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ "$1" = configure ] && [ -n "$2" ] || [ "$1" = 2 ]; then
	echo "flightd: the service runs the version before until you restart it: systemctl restart flightd"
	exit 0
fi
cat <<'NEXT'
flightd is installed. To try it, without root:   flightd dev
To serve others, once, as root:
  flightd cert init /etc/flightd/tls --host flightd.example.com
  chgrp flightd /etc/flightd/tls/server.key && chmod 640 /etc/flightd/tls/server.key
  runuser -u flightd -- flightd serve --init --data /var/lib/flightd --first-token-file /var/lib/flightd/first-token
  systemctl enable --now flightd                 # settings: /etc/flightd/flightd.yaml, also those of the commands on this machine
NEXT
