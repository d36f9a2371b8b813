#!/usr/bin/env bash
# Prints the path of promtool: $PROMTOOL, or promtool in PATH, or promtool from Debian's Prometheus package, which is
# extracted into bin/tools without being installed.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${PROMTOOL:-}" ]; then echo "$PROMTOOL"; exit; fi
if command -v promtool; then exit; fi
tool=bin/tools/promtool
if [ ! -x "$tool" ]; then
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "promtool is missing: install Prometheus (brew install prometheus, or your system's package), or set PROMTOOL" >&2
    exit 1
  fi
  place=$(mktemp -d)
  trap 'rm -rf "$place"' EXIT
  chmod 755 "$place"
  fetch() { (cd "$place" && apt-get -qq -o APT::Sandbox::User=root download prometheus) >&2; }
  fetch || { apt-get -qq update >&2 && fetch; }
  dpkg-deb -x "$place"/prometheus_*.deb "$place/out"
  mkdir -p "$(dirname "$tool")"
  install -m 755 "$place/out/usr/bin/promtool" "$tool"
fi
echo "$PWD/$tool"
