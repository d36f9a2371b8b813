#!/usr/bin/env bash
# Builds the downloads: for every platform an archive with the static binary, the manual pages, completions, the licence and the
# licences of all modules in the binary (NOTICES), and SHA256SUMS of the archives. It needs GNU tar and gzip.
#
#   deploy/release.sh VERSION PLATFORMS OUT         VERSION "": git describe; PLATFORMS: linux/amd64,darwin/arm64
#   deploy/release.sh --check VERSION PLATFORMS     builds twice, from copies in two folders, and compares the bytes
#   deploy/release.sh --version VERSION             prints the version that everything in a release has
#
# The build is reproducible: the same source, version and Go release give the same bytes. Paths are trimmed, the version is
# stamped instead of the toolchain's VCS information, archive entries are sorted, and they and the manual carry the time of
# the commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
umask 022
go=${GO:-go}
source=$(cd "$(dirname "$0")/.." && pwd)
check=; [[ ${1:-} != --check ]] || { check=yes; shift; }
print=; [[ ${1:-} != --version ]] || { print=yes; shift; set -- "$@" none; }
version=${1:-}; platforms=${2:?PLATFORMS is missing}; out=$(realpath -m "${3:-dist}")
cd "$source"
if [[ -z $version ]]; then
	version=$(git describe --tags --match 'v[0-9]*' --always --dirty)
	[[ $version = v* ]] || version=devel-$version
fi
[[ $version =~ ^[A-Za-z0-9._+-]+$ ]] || { echo "release: version '$version': letters, digits, '.', '_', '+' and '-', as in v1.2.3" >&2; exit 2; }
[[ -z $print ]] || { echo "$version"; exit; }
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
[[ $epoch =~ ^[0-9]+$ ]] || { echo "release: SOURCE_DATE_EPOCH '$epoch': want seconds since 1970" >&2; exit 2; }
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

if [[ -n $check ]]; then
	second="$work/another/place/of the second" # the second build starts with an empty build cache
	for copy in "$work/a" "$second"; do # both before the first build, because the source may be edited meanwhile
		mkdir -p "$copy" && git ls-files -z | tar --null -T - -c | tar -x -C "$copy"
	done
	SOURCE_DATE_EPOCH=$epoch "$work/a/deploy/release.sh" "$version" "$platforms" "$work/first"
	SOURCE_DATE_EPOCH=$epoch GOCACHE=$work/cache TZ=Pacific/Chatham "$second/deploy/release.sh" "$version" "$platforms" "$work/second"
	diff -r "$work/first" "$work/second"
	echo "$(find "$work/first" -type f | wc -l) files, built twice: equal"
	exit
fi

export SOURCE_DATE_EPOCH=$epoch TZ=UTC LC_ALL=C CGO_ENABLED=0
export GOFLAGS= GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 GO_EXTLINK_ENABLED=0
build() { "$go" build -o "$1" -trimpath -buildvcs=false -ldflags "-s -w -buildid= -X main.stamped=${version}" ./cmd/flightd; } # as the Dockerfile

# The program itself writes manual and completions, so it is built for this machine first.
here=$work/here common=$work/common
build "$here"
[[ $("$here" version) = "$version" ]] || { echo "release: flightd version prints '$("$here" version)', not $version" >&2; exit 1; }
mkdir -p "$common/completions" "$out"
"$here" man "$common/man" >/dev/null
for shell in bash:flightd.bash zsh:_flightd fish:flightd.fish powershell:flightd.ps1; do
	"$here" completion "${shell%%:*}" >"$common/completions/${shell#*:}"
done
install -m 644 LICENSE "$common/LICENSE"

# notices prints the licences of all modules in the binary. A module without a licence must not be distributed: it fails.
notices() {
	echo "This program contains the following modules. The source of each is at https://pkg.go.dev/PATH@VERSION."
	"$go" list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}' ./cmd/flightd | sort -u |
		while read -r path at dir; do
			texts=$(find "$dir" -maxdepth 1 -type f | grep -iE '/(licen[cs]e|copying|notice|patents)([.-].*)?$' | sort) ||
				{ echo "release: $path $at has no licence file" >&2; exit 1; }
			printf '\n%s\n%s %s\n\n' "$(printf '=%.0s' {1..80})" "$path" "$at"
			while read -r text; do tr -d '\r' <"$text"; echo; done <<<"$texts"
		done
}

rm -f "$out/SHA256SUMS"
for platform in ${platforms//,/ }; do
	[[ $platform = ?*/?* ]] || { echo "release: platform '$platform' is not OS/ARCH, such as linux/amd64" >&2; exit 2; }
	export GOOS=${platform%/*} GOARCH=${platform#*/}
	name=flightd-$version-$GOOS-$GOARCH
	cp -r "$common" "$work/$name"
	build "$work/$name/flightd"
	notices >"$work/$name/NOTICES"
	if [[ $GOOS = linux ]]; then
		install -D -m 644 deploy/systemd/flightd.service "$work/$name/systemd/flightd.service"
		install -m 644 deploy/flightd.yaml "$work/$name/flightd.yaml"
	fi
	tar -C "$work" --sort=name --format=ustar --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -c "$name" | gzip -9n >"$out/$name.tar.gz"
	(cd "$out" && sha256sum "$name.tar.gz" | tee -a SHA256SUMS)
done
