# Go 1.26 and make are enough to begin; the Go modules are fetched.
GO ?= go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: all build dev test long race lint metrics-check bench bin/bench bench-large restart drill power-cut chaos-short chaos-planted chaos-tools cross explore mutants fuzz clients clients-soak client-tools client-drivers man install release release-check release-try

all: build

build: ## builds the binary in bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/flightd ./cmd/flightd

dev: ## builds bin/flightd and runs it on this machine only, as flightd dev; its data stays in ./flightd-data
	CGO_ENABLED=0 $(GO) build -o bin/flightd ./cmd/flightd
	exec bin/flightd dev

test: ## runs every test, with short explorations, in less than five minutes on two cores
	CGO_ENABLED=0 $(GO) test -short -parallel 4 ./...
	CGO_ENABLED=0 $(GO) test -C chaos -short -parallel 4 ./...

long: ## runs in full length the tests that make test shortens or skips: explorations, soaks, many jobs, and the build of a release
	CGO_ENABLED=0 $(GO) test ./flight/... ./executor/... ./remote/... ./deploy
	CGO_ENABLED=0 $(GO) test -count=1 -v -run TestManyJobs ./node

race: ## runs the concurrent packages under the race detector; process tests run binaries, which it does not instrument, it is too slow for a test of rates, and for four clusters at once on two cores
	$(GO) test -race -p 1 -parallel 4 -skip TestSlowCallersDoNotStopOthers ./effect/... ./internal/runner/... ./internal/gate/... ./lease/... ./clusterstore/... ./executor/... ./remote/... ./saga/... ./httpapi/... ./client/... ./metrics/... ./flightdtest/...
	$(GO) test -race -p 1 -parallel 2 -skip TestSlowCallersDoNotStopOthers ./node/...

lint: cross ## checks formatting and module checksums, runs vet and staticcheck, and builds for other systems
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted:"; echo "$$unformatted"; exit 1; fi
	for module in . chaos; do (cd $$module && $(GO) mod verify && CGO_ENABLED=0 $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...) || exit 1; done

metrics-check: build ## checks alert rules, dashboard and metrics with promtool, which it fetches if missing
	deploy/check.sh

cross:
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/flightd
	GOOS=linux GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/flightd

bin/bench:
	CGO_ENABLED=0 $(GO) build -C chaos -o ../bin/bench ./bench

BENCH ?=
bench: bin/bench ## measures the table of docs/performance.md on this machine; bin/bench -help lists the options for BENCH
	bin/bench $(BENCH)

LARGE ?= -stored 10000000
bench-large: bin/bench ## measures ten million receipts: memory, starts, new keys, replays, retention; about 30 GB in DIR
	bin/bench $(LARGE) -dir "$(DIR)"

restart: bin/bench ## measures a start with 2,000,000 stored receipts
	bin/bench -stored=2000000 -ending=0 -only=start

.PHONY: docs openapi-check
docs: ## generates docs/openapi.json from the code
	$(GO) test ./httpapi -count=1 -run TestDocsAreCurrent -update

openapi-check: ## checks that the OpenAPI document is current, and lints it; needs node 20 or newer
	$(GO) test ./httpapi -count=1 -run 'TestDocsAreCurrent|TestEveryRouteIsDescribed'
	cd tools/openapi && npm ci --loglevel=error && \
		REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true npx --no-install redocly lint --config redocly.yaml ../../docs/openapi.json

drill: build ## kills caller and server at every point of no return, and counts the effects
	./bin/flightd drill

CUTS ?= -rounds 8
power-cut: ## cuts the power of a virtual machine with flightd under load; needs root, qemu and mmdebstrap
	CGO_ENABLED=0 $(GO) build -o bin/powercut/flightd ./cmd/flightd
	$(GO) build -C chaos -o ../bin/powercut/cut ./powercut
	bin/powercut/cut -flightd bin/powercut/flightd $(CUTS)

SEED ?= 0
chaos-short: chaos-tools ## kills, freezes and cuts off nodes of a cluster under load, also under workers, in less than eight minutes; needs Linux, root and nft; SEED=N repeats a run, CHAOS=-own-etcd puts etcd on hosts of its own
	$(GO) vet -C chaos -tags chaos ./...
	CGO_ENABLED=0 $(GO) test -C chaos -tags chaos -count=1 -timeout 10m -parallel 4 -v -run 'TestKilledNodes|TestCutOffNode|TestNoMajority|TestOwnEtcd|TestPools' ./cluster -args -seed $(SEED) $(CHAOS)

chaos-planted: chaos-tools ## plants bugs in flightd, one at a time, and requires that the provider's books show each; needs what chaos-short needs
	CGO_ENABLED=0 $(GO) test -C chaos -tags chaos -count=1 -timeout 10m -v -run TestPlantedBugs ./cluster -args -seed $(SEED)

# nft cuts links between hosts; callers are in Python and TypeScript, too. Missing tools are installed from Debian's packages, which
# needs root.
chaos-tools:
	@missing=$$(command -v nft >/dev/null || echo nftables; for tool in python3 npm; do command -v $$tool >/dev/null || echo $$tool; done); \
	if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; fi
	cd clients/typescript && npm ci --no-audit --no-fund && npm run build

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
clients: client-drivers ## runs the list of tests that all clients pass, and the commands and snippets of README and docs/ as printed
	$(GO) vet -tags clients ./clients/...
	FLIGHTD_CLIENTS="$(CLIENTS)" $(GO) test -tags clients -count=1 -parallel 8 -timeout 10m ./clients/...
	FLIGHTD_CLIENTS="$(CLIENTS)" FLIGHTD_CLIENTS_SECURE=1 $(GO) test -tags clients -count=1 -parallel 8 -timeout 10m -run 'TestConformance|TestReadmes' ./clients/conformance
	FLIGHTD_CLIENTS="$(CLIENTS)" FLIGHTD_CLIENTS_NODES=3 $(GO) test -tags clients -count=1 -parallel 8 -timeout 10m -run 'TestConformance|TestSoak$$' ./clients/conformance

SOAKS ?= 30
clients-soak: client-drivers ## kills nodes of a cluster under clients of all languages; half a minute for each of SOAKS runs; then the same with a lagging node
	FLIGHTD_CLIENTS="$(CLIENTS)" FLIGHTD_CLIENTS_NODES=3 FLIGHTD_SOAKS=$(SOAKS) $(GO) test -tags clients -count=1 -timeout 3h -v -run TestSoak ./clients/conformance

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

HERE = $(shell $(GO) env GOOS)/$(shell $(GO) env GOARCH)
release-try: client-tools ## unpacks an archive for this platform, and runs the README's first screen and snippets with its binary
	rm -rf dist/try
	GO="$(GO)" deploy/release.sh "$(VERSION)" "$(HERE)" dist/try
	cd dist/try && sha256sum -c SHA256SUMS && tar -xzf flightd-*.tar.gz --strip-components=1
	cd clients/typescript && npm ci --no-audit --no-fund && npm run build
	FLIGHTD_TEST_BINARY="$(CURDIR)/dist/try/flightd" $(GO) test -tags clients -count=1 -timeout 10m -run 'TestFirstScreen|TestReadmes' ./clients/conformance
