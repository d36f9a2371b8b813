#!/usr/bin/env bash
# Checks with promtool: the alert rules and their tests, the expressions of the dashboard, and the metrics of a node, which
# this script starts and stops. Requires bin/flightd.
set -euo pipefail
cd "$(dirname "$0")/.."
promtool=$(deploy/promtool.sh)
work=$(mktemp -d)
node=
finish() {
  if [ -n "$node" ]; then kill "$node" 2>/dev/null || true; wait "$node" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

echo "== rules"
"$promtool" check config deploy/prometheus/prometheus.yml
"$promtool" test rules deploy/prometheus/alerts_test.yml

echo "== dashboard"
{
  echo "groups:"
  echo "  - name: dashboard"
  echo "    rules:"
  sed -n 's/^ *"expr": "\(.*\)",*$/\1/p' deploy/grafana/flightd.json | sed 's/\\"/"/g; s/\$__rate_interval/5m/g' |
    awk '{ printf "      - {record: \"panel:%d\", expr: '\''%s'\''}\n", NR, $0 }'
} >"$work/dashboard.yml"
"$promtool" check rules "$work/dashboard.yml"

echo "== node metrics"
bin/flightd dev --data "$work/data" --listen 127.0.0.1:0 >"$work/url" 2>"$work/log" &
node=$!
for _ in $(seq 100); do
  if [ -s "$work/url" ] || ! kill -0 "$node" 2>/dev/null; then break; fi
  sleep 0.1
done
url=$(head -n 1 "$work/url")
if [ -z "$url" ]; then cat "$work/log" >&2; exit 1; fi
XDG_STATE_HOME="$work/state" bin/flightd --server "$url" exec --key check/1 -- true
exec 3<>"/dev/tcp/127.0.0.1/${url##*:}"
printf 'GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' >&3
tr -d '\r' <&3 | sed '1,/^$/d' >"$work/metrics"
exec 3>&-
grep -q '^flightd_calls_total{action="check",result="proceed"} 1$' "$work/metrics"
"$promtool" check metrics <"$work/metrics"
echo "$(grep -c '^# TYPE flightd_' "$work/metrics") metrics of flightd, linted"
