# Go 1.26 and make are enough to begin; the Go modules are fetched.
GO ?= go
# One set of flags for programs, tests and checks, so that one does not compile again what another has compiled: that of a release. The race
# detector alone needs cgo, and a C compiler.
export CGO_ENABLED := 0
export GOFLAGS := $(strip -trimpath $(filter-out -trimpath,$(GOFLAGS)))
BUILD = $(GO) build
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: all build dev test compiled race-compiled unraced race race-node race-others long night lint metrics-check bench bin/bench bench-large restart drill power-cut chaos chaos-short chaos-night chaos-lock chaos-tools cross explore mutants fuzz clients clients-soak client-tools client-drivers man install release release-check docs-try console-test screenshots console-tools

all: build

build: ## builds the binary in bin/
	$(BUILD) -o bin/flightd ./cmd/flightd

dev: ## builds bin/flightd and runs it on this machine only, as flightd dev; its data stays in ./flightd-data
	$(BUILD) -o bin/flightd ./cmd/flightd
	exec bin/flightd dev

test: ## runs every test, with short explorations, in nine minutes on two cores, builds included
	$(GO) test -short -parallel 4 ./...
	$(GO) test -C chaos -short -parallel 4 ./...

# The packages with goroutines of their own, whose tests run under the race detector. It is too slow for a test of rates, for tables of
# pure functions, and for four clusters at once on two cores.
RACED = ./effect/... ./internal/runner/... ./internal/gate/... ./lease/... ./clusterstore/... ./executor/... ./remote/... ./saga/driver/... ./httpapi/... ./client/... ./metrics/... ./flightdtest/... ./internal/notify/... ./traces/...
RATES = TestSlowCallersDoNotStopOthers
MANY = TestManyJobs|TestManySagas
TABLES = TestDecide
# make lint vets every package once, and go test would vet it, with all that it imports, for each kind of build.
UNVETTED = $(GO) test -vet=off
# Pebble's zstd is C with cgo. Nothing here needs it to be fast, and it compiles in a third of the time.
RACE = CGO_ENABLED=1 CGO_CFLAGS=-O0 $(UNVETTED) -race
race: ## runs the tests of the packages with goroutines under the race detector; process tests run binaries, which it does not instrument
	$(MAKE) --no-print-directory -j 2 -O race-node race-others

race-node: # node also runs what make test skips, but for what make long measures
	$(RACE) -parallel 2 -skip '$(RATES)|$(MANY)' ./node/...

# With more than one processor the runtime of Go 1.26 ends the process now and then: goroutines that read a ticker, and the goroutine that
# runs the timers of a synctest bubble, share one context of the race detector (SIGSEGV in StackDepotBase::Put, in five of 60 runs of
# package remote, and in none of 60 with one). node has three clusters at once in its tests, which need both, and few bubbles.
race-others:
	$(RACE) -cpu 1 -short -p 1 -parallel 4 -skip $(RATES) $(RACED)

# compiled and race-compiled fill the build cache: .ci/run compiles for the race detector beside tests that mostly wait.
UNRACED = $$({ $(GO) list ./... && $(GO) list $(RACED) ./node/...; } | sort | uniq -u)
compiled:
	$(GO) list -export -test -deps $(UNRACED) >/dev/null
	$(GO) list -C chaos -export -test -deps ./... >/dev/null

race-compiled:
	CGO_ENABLED=1 CGO_CFLAGS=-O0 $(GO) list -race -export -test -deps $(RACED) ./node/... >/dev/null

unraced: ## runs what make test has and make race has not: with it, each test runs once
	$(UNVETTED) -short -parallel 4 $(UNRACED)
	$(UNVETTED) -short -run '$(TABLES)' ./remote
	$(GO) test -C chaos -vet=off -short -parallel 4 ./...

long: ## runs in full length the tests that make test shortens or skips: explorations, many jobs and sagas, changes of leader and restores
	$(GO) test ./flight/... ./saga/... ./executor/... ./remote/...
	$(GO) test -count=1 -run TestCrashAtAnyMoment ./clusterstore
	$(GO) test -count=1 -v -run '$(MANY)|$(RATES)' ./node
	$(GO) test -count=1 -v -tags deep -run 'TestNotify_ChangesOfLeader|TestRestore_ClusterCycles|TestFloods$$' -timeout 30m ./cmd/flightd

night: ## runs what shows only in long runs, within an hour: make long, builds for other systems, soaks of clients, chaos and every planted bug
	SOAKS=6 HOURS=0.1 .ci/run long cross clients-soak chaos-night

lint: ## checks formatting and module checksums, runs vet and staticcheck, and checks the types for other systems
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	for module in . chaos; do (cd $$module && $(GO) mod verify && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...) || exit 1; done
	$(GO) vet -C chaos -tags browser ./console
	$(GO) test -count=1 -tags systems -run TestSystems ./internal/arch

metrics-check: build ## checks alert rules, dashboard and metrics with promtool, which it fetches if missing
	deploy/check.sh

cross: ## builds for other systems; make lint checks no more than their types
	GOOS=darwin GOARCH=arm64 $(BUILD) -o /dev/null ./cmd/flightd
	GOOS=linux GOARCH=arm64 $(BUILD) -o /dev/null ./cmd/flightd

bin/bench:
	$(BUILD:build=build -C chaos) -o ../bin/bench ./bench

BENCH ?=
bench: bin/bench ## measures the table of docs/performance.md on this machine; bin/bench -help lists the options for BENCH
	bin/bench $(BENCH)

LARGE ?= -stored 10000000
bench-large: bin/bench ## measures ten million receipts: memory, starts, new keys, replays, retention; about 30 GB in DIR
	bin/bench $(LARGE) -dir "$(DIR)"

restart: bin/bench ## measures a start with 2,000,000 stored receipts
	bin/bench -stored=2000000 -ending=0 -only=start

.PHONY: docs openapi-check openapi-lint
docs: ## brings docs/openapi.json up to date with the code; it keeps the texts, and lists those that are missing
	$(GO) test ./httpapi -count=1 -run TestDocsAreCurrent -update

openapi-check: openapi-lint ## checks that the OpenAPI document is current, and lints it; needs node 20 or newer
	$(GO) test ./httpapi -count=1 -run TestDocsAreCurrent

openapi-lint: ## lints the OpenAPI document; make test and make race check that it is current
	cd tools/openapi && npm ci --loglevel=error && \
		REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true npx --no-install redocly lint --config redocly.yaml ../../docs/openapi.json

drill: build ## kills caller and server at every point of no return, and counts the effects
	./bin/flightd drill

CUTS ?= -rounds 8
power-cut: ## cuts the power of a virtual machine with flightd under load; needs root, qemu and mmdebstrap
	$(BUILD) -o bin/powercut/flightd ./cmd/flightd
	$(BUILD:build=build -C chaos) -o ../bin/powercut/cut ./powercut
	bin/powercut/cut -flightd bin/powercut/flightd $(CUTS)

# CHAOS has options of the program, as in CHAOS='-own-etcd -nodes 5'; go run -C chaos . -help lists them. Its page is bin/chaos.html.
SEED ?= 0
CHAOS_RUN = mkdir -p bin && $(BUILD:build=build -C chaos) -o ../bin/chaos . && $(BUILD) -o bin/flightd-chaos ./cmd/flightd && bin/chaos -flightd bin/flightd-chaos
chaos: chaos-tools ## tears a cluster apart for ten minutes, and judges every promise; needs Linux, root and loop devices; SEED=N repeats a run
	$(CHAOS_RUN) -seed $(SEED) -report bin/chaos.html $(CHAOS)

# Five bugs that different checkers must find: the provider's books, those of sagas, the log of the ledger, the order of answers, the approvals.
CHAOS_BUGS = hold is taken for resend,past its pivot,a token does not rise,a redaction keeps the receipt,nothing awaits its approval
chaos-short: chaos-tools ## the same for 45 seconds with a fixed seed, and five planted bugs that must be found; four minutes
	$(CHAOS_RUN) -seed 7 -slow 3 -for 45s -report bin/chaos.html $(CHAOS)
	bin/chaos -flightd bin/flightd-chaos -seed 7 -slow 3 -for 10s -callers 16 -plant '$(CHAOS_BUGS)'

HOURS ?= 1
chaos-night: chaos-tools ## the same for HOURS, then every planted bug
	$(CHAOS_RUN) -seed $(SEED) -for $(HOURS)h -report bin/chaos.html $(CHAOS)
	bin/chaos -flightd bin/flightd-chaos -seed $(SEED) -for 20s -callers 16 -plant all

chaos-lock: chaos-tools ## workers of flightd stand still for three times the life of a session, beside workers with a mutex of etcd; five minutes
	$(CHAOS_RUN) -lock -for 5m

# Callers are in Python and TypeScript, too. Missing tools are installed from Debian's packages, which needs root.
chaos-tools:
	@missing=$$(command -v mkfs.ext4 >/dev/null || echo e2fsprogs; for tool in python3 npm; do command -v $$tool >/dev/null || echo $$tool; done); \
	if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; fi
	cd clients/typescript && npm ci --no-audit --no-fund && npm run build

console-test: console-tools ## tests the console in a real browser
	$(GO) test -C chaos -vet=off -tags browser -count=1 -parallel 2 -timeout 10m ./console

screenshots: console-tools ## writes the pictures of the console to docs/img
	FLIGHTD_SCREENSHOTS=$(CURDIR)/docs/img $(GO) test -C chaos -tags browser -count=1 -run TestScreenshots ./console

# The browser, and axe-core, which looks for what people with disabilities could not use. Debian's packages need root.
console-tools:
	@missing=$$(for tool in chromium npm; do command -v $$tool >/dev/null || echo $$tool; done); \
	if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; fi
	cd tools/console && npm ci --no-audit --no-fund --loglevel=error

explore: ## explores the rules one command deeper than the tests, and the whole table of the protocol model
	$(GO) test -tags deep -run 'TestExhaustive|TestSagas_Explored' -timeout 60m -v ./flight ./flight/protocolmodel

mutants: ## breaks one rule of package flight, or of the hand-out of jobs, at a time; the tests must catch each break
	$(GO) test -tags mutants -run TestMutants -timeout 60m ./flight

FUZZTIME ?= 30s
fuzz: ## fuzzes every decoder of package flight, for FUZZTIME each
	@for target in $$($(GO) test -list '^Fuzz' ./flight | grep '^Fuzz'); do \
		echo "== $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x ./flight || exit 1; done

# The tools that the clients' tests need besides Go. Missing tools are installed from Debian's packages, which needs root.
client-tools:
	@for tool in python3 curl jq openssl npm zsh; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	echo "missing:$$missing"; apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing

# The languages whose clients are tested. Each needs its tools: python3; node with npm; the snippets also curl, jq, openssl, zsh.
CLIENTS ?= go python typescript
CLIENTS_TEST = FLIGHTD_CLIENTS="$(CLIENTS)" $(UNVETTED) -tags clients -count=1 -parallel 8
clients: client-drivers ## runs the list of tests that all clients pass, against three nodes with TLS and tokens, and README's first screen
	$(GO) vet -tags clients ./clients/...
	FLIGHTD_CLIENTS_SECURE=1 FLIGHTD_CLIENTS_NODES=3 $(CLIENTS_TEST) -timeout 20m -skip 'TestSoak|TestReadmes|TestDocs$$' ./clients/...

docs-try: client-drivers ## runs the commands and snippets that README and docs/ print, against plain HTTP where they do not say otherwise
	$(CLIENTS_TEST) -timeout 10m -run 'TestFirstScreen|TestReadmes|TestDocs$$' ./clients/conformance

SOAKS ?= 30
clients-soak: client-drivers ## kills a node, and nodes of a cluster, under clients of all languages; half a minute for each of SOAKS runs; then the same with a lagging node
	FLIGHTD_SOAKS=$(SOAKS) $(CLIENTS_TEST) -timeout 3h -v -run 'TestSoak$$' ./clients/conformance
	FLIGHTD_CLIENTS_SECURE=1 FLIGHTD_CLIENTS_NODES=3 FLIGHTD_SOAKS=$(SOAKS) $(CLIENTS_TEST) -timeout 3h -v -run TestSoak ./clients/conformance

client-drivers: client-tools
ifneq (,$(filter typescript,$(CLIENTS)))
	cd clients/typescript && npm ci --no-audit --no-fund && npm run build
endif

man: build ## writes the manual to bin/man, a page per command
	rm -rf bin/man
	./bin/flightd man bin/man

PREFIX ?= /usr/local
install: man ## installs binary, manual and completions in DESTDIR and PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 755 bin/flightd $(DESTDIR)$(PREFIX)/bin/flightd
	install -m 644 bin/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	./bin/flightd completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flightd
	./bin/flightd completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flightd
	./bin/flightd completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flightd.fish

VERSION ?=
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64
release: ## builds archives for every platform and SHA256SUMS in dist/; VERSION=v1.2.3 replaces git's version
	GO="$(GO)" deploy/release.sh "$(VERSION)" "$(PLATFORMS)" dist

release-check: ## builds the release twice, in different folders, and compares the bytes
	GO="$(GO)" deploy/release.sh --check "$(VERSION)" "$(PLATFORMS)"

# Python's build tools are Debian's packages; missing ones are installed, which needs root.
package-tools: client-tools
	@missing=$$(/usr/bin/python3 -c 'import build, hatchling.build' 2>/dev/null || echo python3-build python3-hatchling); \
	if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; fi

packages: package-tools ## builds archives, .deb, .rpm, npm and Python packages, compose file and manifests, and SHA256SUMS in dist/
	GO="$(GO)" deploy/packages.sh "$(VERSION)" "$(PLATFORMS)" dist

HERE = $(shell $(GO) env GOOS)/$(shell $(GO) env GOARCH)
packages-try: package-tools ## builds the packages for this platform, tries each in a fresh folder, with a clock, and runs what README and docs/ print with the binary of the archive; needs root for .deb and .rpm
	@missing=$$(command -v rpm >/dev/null || echo rpm; /usr/bin/python3 -c 'import mypy, ensurepip' 2>/dev/null || echo python3-mypy python3-venv); \
	if [ -n "$$missing" ]; then apt-get install -y -qq --no-install-recommends $$missing; fi
	$(GO) mod download
	GO="$(GO)" deploy/packages.sh "$(VERSION)" "$(HERE)" dist/packages-try
	GO="$(GO)" deploy/packages-try.sh dist/packages-try
	tar -xzf dist/packages-try/flightd-*-$(subst /,-,$(HERE)).tar.gz -C dist/packages-try --strip-components=1 --wildcards '*/flightd'
	$(UNVETTED) -count=1 -run TestRelease ./deploy
	FLIGHTD_TEST_BINARY="$(CURDIR)/dist/packages-try/flightd" $(GO) test -C tools/manifests -vet=off -count=1 .
	FLIGHTD_TEST_BINARY="$(CURDIR)/dist/packages-try/flightd" $(MAKE) docs-try
