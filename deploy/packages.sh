#!/usr/bin/env bash
# Builds everything that a release delivers: the archives, .deb and .rpm, the npm packages, the Python client, the compose file and
# the Kubernetes manifests, and SHA256SUMS of all of it. All have the version of release.sh, in the form that their kind wants.
#
#   deploy/packages.sh VERSION PLATFORMS OUT        as release.sh; files of an earlier build in OUT are removed
#
# It needs Go, npm, and a PYTHON with the modules build and hatchling; make packages installs what is missing.
set -euo pipefail
umask 022
go=${GO:-go} python=${PYTHON:-/usr/bin/python3} nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
source=$(cd "$(dirname "$0")/.." && pwd)
platforms=${2:?PLATFORMS is missing} out=$(realpath -m "${3:?OUT is missing}")
cd "$source"
version=$(deploy/release.sh --version "${1:-}")
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} TZ=UTC LC_ALL=C
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

# A version that is none of semver, such as devel-1a2b3c4, is a pre-release of 0.0.0. Python and Linux have forms of their own.
semver=${version#v}
[[ $semver =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || semver=0.0.0-${version//[^0-9A-Za-z.-]/-}
pep440=${semver%%-*} suffix=${semver#"$pep440"}
case $suffix in
	'') ;;
	-rc.[0-9]*) pep440+=rc${suffix#-rc.} ;;
	*) suffix=${suffix//-/.} pep440+=.dev0+${suffix#.} ;;
esac

linux=${semver/-/\~} linux=${linux//-/.}

rm -rf "$out"
deploy/release.sh "$version" "$platforms" "$out"
GOBIN=$work CGO_ENABLED=0 GOFLAGS=-trimpath "$go" install "$nfpm" # with the flags of a release: the standard library is compiled

pack() { (cd "$1" && npm pack --silent --ignore-scripts --pack-destination "$out"); }
described='"version": "'$semver'", "license": "Apache-2.0", "homepage": "https://github.com/flightd/flightd"'
optional=
for platform in ${platforms//,/ }; do
	os=${platform%/*} arch=${platform#*/}
	tar -C "$work" -xzf "$out/flightd-$version-$os-$arch.tar.gz"
	tree=$work/flightd-$version-$os-$arch
	cpu=${arch/amd64/x64} name=@flightd/flightd-$os-${arch/amd64/x64}
	optional+="${optional:+, }\"$name\": \"$semver\""
	mkdir -p "$work/$name/bin"
	cp "$tree/flightd" "$work/$name/bin/" && cp "$tree/LICENSE" "$tree/NOTICES" "$work/$name/"
	echo "{\"name\": \"$name\", \"description\": \"flightd for $platform\", $described, \"os\": [\"$os\"], \"cpu\": [\"$cpu\"], \"preferUnplugged\": true}" >"$work/$name/package.json"
	pack "$work/$name"
	[[ $os = linux ]] || continue
	# The package has a user, so that root can give the key of a certificate to its group. Without a certificate, the commands of
	# all users reach flightd dev.
	sed -i -E 's/^(server|ca_file):/#&/' "$tree/flightd.yaml"
	{ echo "# The flightd of a company, on one machine. https://github.com/flightd/flightd/blob/main/docs/operations.md"
	sed -e '1,/^$/d' -e 's,/usr/local/bin/,/usr/bin/,' -e '/^# The user exists only/s/.*/# The data is in \/var\/lib\/flightd./' -e 's/^DynamicUser=yes$/User=flightd\nGroup=flightd/' \
		deploy/systemd/flightd.service; } >"$tree/systemd/flightd.service"
	cp deploy/linux/* "$tree/"
	for kind in deb rpm; do
		(cd "$tree" && ARCH=$arch VERSION=$linux "$work/nfpm" package --config nfpm.yaml --packager $kind --target "$out")
	done
done

mkdir -p "$work/npm/bin" "$work/client"
cp deploy/npm/flightd.js "$work/npm/bin/" && cp deploy/npm/README.md LICENSE "$work/npm/"
cat >"$work/npm/package.json" <<END
{"name": "flightd", "description": "flightd runs each business intent once per key", $described, "engines": {"node": ">=18"},
 "bin": {"flightd": "bin/flightd.js"}, "optionalDependencies": {$optional}}
END
pack "$work/npm"

# One instance for both kinds of modules: what ESM imports is the CommonJS module, with its types.
(cd clients/typescript && npm ci --silent --no-audit --no-fund && npx --no-install tsc --project tsconfig.package.json --outDir "$work/client")
for file in flightd.mjs flightd.d.mts; do echo 'export * from "./flightd.js";' >"$work/client/$file"; done
cp clients/typescript/README.md LICENSE "$work/client/"
cat >"$work/client/package.json" <<END
{"name": "@flightd/client", "description": "The client of flightd: a side effect runs once per key, and every duplicate gets its receipt", $described, "engines": {"node": ">=20.3"},
 "main": "flightd.js", "types": "flightd.d.ts", "exports": {".": {
  "import": {"types": "./flightd.d.mts", "default": "./flightd.mjs"}, "require": {"types": "./flightd.d.ts", "default": "./flightd.js"}}}}
END
pack "$work/client"

cp -r clients/python "$work/python" && cp LICENSE "$work/python/" && sed -i "s/^version = .*/version = \"$pep440\"/" "$work/python/pyproject.toml"
"$python" -m build --no-isolation --skip-dependency-check --outdir "$out" "$work/python" >"$work/python.log" || { cat "$work/python.log" >&2; exit 1; }
chmod 644 "$out"/flightd-*.whl "$out"/flightd-*.tar.gz # the module build makes files that nobody else may read

mkdir "$work/flightd-deploy-$version" && cp -r deploy/compose.yaml deploy/kubernetes "$work/flightd-deploy-$version/"
sed -i "s/flightd:devel/flightd:$version/" "$work/flightd-deploy-$version"/compose.yaml "$work/flightd-deploy-$version"/kubernetes/*
tar -C "$work" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "flightd-deploy-$version" | gzip -9n >"$out/flightd-deploy-$version.tar.gz"

cd "$out" && rm SHA256SUMS && sha256sum -- * >"$work/SHA256SUMS" && cp "$work/SHA256SUMS" . && cat SHA256SUMS
