#!/usr/bin/env bash
# Tries the packages of a DIST, each in a fresh folder: from the package to the first proof, which is flightd dev, a command that runs
# once and its replay, within 60 s. Then what is particular to each: the clients of pip and npm, signals and exit codes through
# npm, the user, the settings and the ledger of .deb and .rpm, and go get of a tag.
#
#   deploy/packages-try.sh DIST        prints a line per package, with the seconds
#
# .deb and .rpm need root: they are installed in a mount namespace, on a copy of this system that is only in memory. Nothing is
# installed on the machine, and nothing is asked of a package registry.
set -euo pipefail
dist=$(realpath "${1:?DIST is missing}") source=$(cd "$(dirname "$0")/.." && pwd) go=${GO:-go} python=${PYTHON:-/usr/bin/python3}
modules=$("$go" env GOMODCACHE) GOCACHE=$("$go" env GOCACHE); export GOCACHE
work=$(mktemp -d)
trap '[[ -z ${dev:-} ]] || kill -- "-$dev" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { echo "packages-try: $*" >&2; [[ ! -e dev.log ]] || cat dev.log >&2; exit 1; }
(cd "$dist" && sha256sum --quiet --strict -c SHA256SUMS)
export npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# fresh NAME: the clock starts, in an empty folder that is the home, with an address of its own.
fresh() {
	name=$1 began=$EPOCHREALTIME dev=
	mkdir "$work/$name" && cd "$work/$name" && export HOME=$PWD XDG_STATE_HOME=$PWD/state
	export FLIGHTD_LISTEN=127.77.$((RANDOM % 256)).$((1 + RANDOM % 254)):7420; export FLIGHTD_ADDR=http://$FLIGHTD_LISTEN
}

# start FLIGHTD...: starts flightd dev, as the leader of a process group, as a terminal does.
start() {
	set -m; "$@" dev >dev.log 2>&1 & dev=$!; set +m
	until "$@" ready >ready.log 2>&1; do
		kill -0 "$dev" && (((${EPOCHREALTIME/./} - ${began/./}) < 60000000)) || fail "$name: flightd dev is not ready: $(cat ready.log)"
		sleep 0.1
	done
}

# prove FLIGHTD...: the first proof; flightd dev keeps running.
prove() {
	start "$@"
	local first second
	first=$("$@" exec --key pay-1 -- date +%s.%N)
	second=$("$@" exec --key pay-1 -- date +%s.%N 2>said)
	[[ -n $first && $first = "$second" ]] && grep -q 'replayed' said || fail "$name: '$first', then '$second': $(cat said)"
	local took=$(((${EPOCHREALTIME/./} - ${began/./}) / 1000))
	printf '%-8s first proof after %d.%d s\n' "$name" $((took / 1000)) $((took % 1000 / 100))
	((took < 60000)) || fail "$name: more than 60 s"
}

# stop [RECEIVER]: SIGTERM to the process group, or to one process, ends what start has started, and the server. npx dies of it.
stop() {
	kill -- "${1:--$dev}" && wait "$dev" || [[ $? = 143 && $name = npm ]] || fail "$name: flightd dev did not stop"
	dev=
	for _ in {1..50}; do curl -s -o /dev/null "$FLIGHTD_ADDR/livez" || return 0; sleep 0.1; done
	fail "$name: the server still answers"
}

fresh archive
tar -xzf "$dist"/flightd-*-linux-"$("$go" env GOARCH)".tar.gz --strip-components=1
prove ./flightd
version=$(./flightd version)

# The Python client: wheel and sdist, typed for callers, and as a worker's command.
for package in "$dist"/*.whl "$dist"/flightd-[0-9]*.tar.gz; do
	"$python" -m venv --clear --system-site-packages venv # the sdist is built with the hatchling of this machine
	venv/bin/pip install -q --no-build-isolation "$package"
	cat >pay.py <<'END'
import flightd

def charge(order: str) -> str:
    with flightd.once("charge", order, {"cents": 4200}) as f:
        with f.effect():
            f.result = "ch_" + order
    return f"{f.source} {f.result}"

print(charge("1"), charge("1"))
END
	venv/bin/python pay.py
	venv/bin/python -m flightd worker --help | grep -q MODULE:CLIENT
done >python.log
[[ $(cat python.log) = $'executed ch_1 replayed ch_1\nreplayed ch_1 replayed ch_1' ]] || fail "pip: $(cat python.log)"
[[ $(find venv/lib -name 'flightd*' -prune | wc -l) = 2 ]] || fail "pip installed more than the package: $(find venv/lib -name 'flightd*' -prune)"
venv/bin/python -m mypy --strict pay.py >mypy.log || fail "$(cat mypy.log)"
echo "pip      wheel and sdist, mypy --strict"

# The client for Node, by import and by require: one module, and types for both.
mkdir app && cd app && echo '{"private": true}' >package.json && npm install --silent "$dist"/flightd-client-*.tgz
cat >pay.mts <<'END'
import { createRequire } from "node:module";
import { once, Client, type Result } from "@flightd/client";
if (createRequire(import.meta.url)("@flightd/client").Client !== Client) throw new Error("import and require have two modules");
const ran = async () => { const f: Result<string> = await once("charge", "2", { cents: 4200 }, (f) => f.effect(async () => "ch_2")); return `${f.source} ${f.value}`; };
console.log(await ran(), await ran());
END
cat >pay.cts <<'END'
import flightd = require("@flightd/client");
flightd.once("charge", "2", { cents: 4200 }, (f) => f.effect(async () => "ch_2")).then((f) => console.log(f.source, f.value));
END
"$source/clients/typescript/node_modules/.bin/tsc" --strict --target es2022 --module nodenext --skipLibCheck false --typeRoots "$source/clients/typescript/node_modules/@types" --types node pay.mts pay.cts
says=$(node pay.mjs && node pay.cjs)
[[ $says = $'executed ch_2 replayed ch_2\nreplayed ch_2' ]] || fail "npm client: $says"
echo "npm      @flightd/client, by import and require"
cd .. && stop

fresh npm
echo '{"private": true}' >package.json
npm install --silent "$dist"/flightd-[0-9]*.tgz "$dist"/flightd-flightd-linux-*.tgz
prove npx --no-install flightd && stop
shim=node_modules/.bin/flightd
[[ $($shim version) = "$version" ]] || fail "npm: another version"
began=$EPOCHREALTIME && start $shim
code=0; $shim exec --key exit -- sh -c 'exit 7' 2>/dev/null || code=$?
[[ $code = 7 ]] || fail "npm: exit code $code, not 7"
stop "$dev"
code=0; rm -r node_modules/@flightd && says=$($shim version 2>&1) || code=$?
[[ $code = 78 && $says = *"is not installed"* ]] || fail "npm: without the platform's package: exit code $code, $says"
echo "npm      signals, exit codes, a missing platform"

# installed KIND COMMANDS...: continues this script in a copy of the system.
if [[ $(id -u) = 0 ]]; then
	for kind in deb rpm; do
		fresh $kind
		export dist name began kind version
		declare -fx fail start prove stop
		mkdir copy
		unshare --mount --propagation private bash -euc '
			mount -t tmpfs none copy && mkdir copy/{upper,work,tree}
			mount -t overlay -o lowerdir=/,upperdir=copy/upper,workdir=copy/work none copy/tree
			for dir in dev proc "$dist" "$HOME"; do mkdir -p "copy/tree/$dir" && mount --rbind "/$dir" "copy/tree/$dir"; done
			exec chroot copy/tree bash -euo pipefail -c "$1"' - '
			cd "$HOME" && trap "[[ -z \${dev:-} ]] || kill -- -\$dev" EXIT
			install() { case $kind in deb) dpkg -i "$dist"/*.deb ;; rpm) rpm -U --nodeps --force "$dist"/*.rpm ;; esac >install.log 2>&1 || fail "$(cat install.log)"; }
			remove() { case $kind in deb) dpkg --purge flightd ;; rpm) rpm -e flightd ;; esac >remove.log 2>&1 || fail "$(cat remove.log)"; }
			userdel flightd 2>/dev/null || true
			install
			prove flightd && stop
			[[ $(flightd version) = "$version" ]] || fail "$name: another version"
			[[ $(stat -c %U:%G:%a /var/lib/flightd) = flightd:flightd:700 ]] || fail "$name: /var/lib/flightd is not of the user flightd"
			grep -q "serve --init" install.log || fail "$name: the first install does not say how to go on"
			ledger() { runuser -u flightd -- flightd serve "$@" --data /var/lib/flightd --allow-plain-http --listen 127.0.0.1:0; }
			mv /etc/flightd/flightd.yaml sample # its certificate is not there
			ledger --init --first-token-file /var/lib/flightd/first-token >/dev/null 2>&1
			sed "s/^#log_level: info/log_level: debug/" sample >/etc/flightd/flightd.yaml
			install
			grep -q "^log_level: debug" /etc/flightd/flightd.yaml || fail "$name: an upgrade replaced the settings"
			grep -q "systemctl restart" install.log || fail "$name: an upgrade does not say what it leaves to you"
			! command -v systemd-analyze >/dev/null || systemd-analyze verify /usr/lib/systemd/system/flightd.service
			remove
			[[ ! -e /usr/bin/flightd && -s /var/lib/flightd/first-token && -d /var/lib/flightd/ledger ]] || fail "$name: what is left: $(ls /var/lib/flightd)"
			echo "$name      user, settings and ledger through upgrade and removal"'
	done
else
	echo "deb, rpm not tried: they need root"
fi

# go get of a tag, which is this checkout's HEAD. The modules of flightd's own build are the proxy.
fresh go
git clone -q --bare "$source" flightd.git && git -C flightd.git tag v0.0.1 "$(git -C "$source" rev-parse HEAD)"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.$PWD/flightd.git.insteadOf GIT_CONFIG_VALUE_0=https://github.com/flightd/flightd
export GOPROXY=file://$modules/cache/download GOPRIVATE=github.com/flightd/flightd GOSUMDB=off GOMODCACHE=$PWD/modules GOFLAGS="-modcacherw -trimpath" GOWORK=off CGO_ENABLED=0
mkdir app && cd app && "$go" mod init example.com/app 2>/dev/null
printf 'package main\n\nimport "github.com/flightd/flightd/client"\n\nfunc main() { _ = client.Key }\n' >main.go
"$go" get github.com/flightd/flightd/client@v0.0.1 2>get.log && "$go" mod tidy 2>>get.log && "$go" build -o app . || fail "go get: $(cat get.log)"
indirect=$(grep -c '// indirect' go.mod)
((indirect <= 6)) || fail "go get: $indirect indirect modules, more than 6: $(cat go.mod)"
echo "go get   of a tag, with $indirect indirect modules"
