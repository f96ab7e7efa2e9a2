# Everything needs only Go and make; race needs a C compiler as well, lint and
# oracles the network once, for their modules. Where there are node and python3, test runs what is
# written for them.
#
# Programs and tests are compiled with the same settings, so that each package is
# compiled once. Without C a program is one file that runs on any system of its
# kind, and a child starts a quarter faster.
export GOFLAGS := $(GOFLAGS) -trimpath -buildvcs=false
export CGO_ENABLED := 0

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PREFIX   ?= $(HOME)/.local
FUZZTIME ?= 5000x
CHAOSFLAGS ?= --minutes 1 --seed 1
# How long one package may take. A test that waits for ever is then named soon.
TIMEOUT  ?= 2m
LDFLAGS  := -s -w -X main.linked=$(VERSION)
# What people get; the demonstration needs no more.
PRODUCTS := nexus nexus-child nexus-rpc
PROGRAMS := $(PRODUCTS) nexus-bench
TOOL     := $(GO) tool -modfile=.ci/tools/go.mod

.DEFAULT_GOAL := help
.PHONY: help build generate test unit scripts foreign soak fuzz race lint bench chaos cross demo test-browser oracles clean install

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the programs, in bin/
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ $(PROGRAMS:%=./cmd/%)

test: unit scripts foreign ## everything that must hold, in five minutes

# Under -short, tests that kill or race over and over do it less often: see soak.
unit:
	$(GO) vet ./...
	$(GO) test -short -timeout $(TIMEOUT) $$($(GO) list ./... | grep -v -e '/cmd$$' -e '/cmd/nexus$$' -e '/cmd/nexus-bench$$')

# These look at programs and packages that the test cache does not see.
scripts: build
	NEXUS_BIN='$(CURDIR)/bin' $(GO) test -short -count=1 -parallel 8 -timeout $(TIMEOUT) ./cmd ./cmd/nexus ./cmd/nexus-bench

soak: fuzz chaos ## what takes longer: whole kill tests and races, fuzzing, chaos
	$(GO) test -count=1 -timeout 20m $$(grep -rl --include='*_test.go' 'testing\.Short()' . | xargs -n1 dirname | sort -u)

foreign: build ## programs in other languages: a parent of nexus-child, the clients (need node, python3)
	@if command -v node >/dev/null; then node fixtures/parent/parent.mjs bin/nexus-child; \
	else echo 'not run: fixtures/parent/parent.mjs, as there is no node here'; fi
	@if node -e 'process.exit(globalThis.AbortSignal?.any ? 0 : 1)' 2>/dev/null; then \
	cd bridge/client/typescript && node --test --test-reporter=dot tests/client.test.mjs; \
	else echo 'not run: bridge/client/typescript, as there is no node 20.3 here'; fi
	@.ci/types
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then \
	cd bridge/client/python && python3 -B -m unittest -q; \
	else echo 'not run: bridge/client/python, as there is no python3 3.9 here'; fi

fuzz: ## each fuzz target for FUZZTIME (executions as 3000x, or a duration)
	@GO='$(GO)' .ci/fuzz $(FUZZTIME)

test-browser: build ## the page, in a headless Chromium (UPDATE=1: its picture, too)
	@[ -n "$$NEXUS_AXE" ] || echo 'not run: axe-core on the page, as NEXUS_AXE names no axe.min.js'
	cd .ci/browser && $(GO) vet . && NEXUS_BIN=$(CURDIR)/bin $(GO) test -count=1 .

# Its go.mod follows that of nexus, by itself (-mod=mod).
oracles: ## the providers' wires, beside what the vendors' SDKs make of them (needs the network once)
	cd .ci/oracles && $(GO) vet -mod=mod . && $(GO) test -mod=mod -count=1 .

race: ## the tests again, under the race detector (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -short -count=1 -timeout 10m ./...

lint: ## golangci-lint and deadcode, built from .ci/tools
	$(TOOL) golangci-lint run ./...
	@dead=$$($(TOOL) deadcode -test ./...) || exit 1; \
	if [ -n "$$dead" ]; then echo "$$dead"; echo 'unreachable code: see above' >&2; exit 1; fi

bench: build ## what nexus costs, beside the floors of this machine (BENCHFLAGS=-quick: in half a minute)
	$(GO) build -ldflags '-s -w' -o bin/nexus-bench-floor ./cmd/nexus-bench/floor
	bin/nexus-bench $(BENCHFLAGS)

chaos: build ## a server under attack, for a minute (CHAOSFLAGS='--minutes 10 --seed 7')
	bin/nexus chaos $(CHAOSFLAGS)

# The descriptions are compiled into the tests that come after them.
generate: ## what follows from the table of methods: golden answers, reference, clients
	UPDATE=1 $(GO) test -count=1 ./bridge/openrpc -run Descriptions
	UPDATE=1 $(GO) test -count=1 ./bridge -run 'TestGolden$$'
	UPDATE=1 $(GO) test -count=1 ./bridge/openrpc ./bridge/client/generate

# Those that cmd/OPERATIONS.md names, beside the one that compiles.
SYSTEMS := linux/amd64 linux/arm64 linux/riscv64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64 freebsd/riscv64
cross: ## the programs for every system that they are said to build for, thrown away
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && for system in $(SYSTEMS); do \
	GOOS=$${system%/*} GOARCH=$${system#*/} $(GO) build -ldflags '-s -w' -o "$$dir/" $(PROGRAMS:%=./cmd/%) || exit 1; \
	echo "ok   build $$system"; done

demo: PROGRAMS = $(PRODUCTS)
demo: build ## two agents, one killed in mid-sentence, back with its memory
	@sh fixtures/scripts/demo.sh bin

# The pages link to each other by these paths.
PAGES := README.md SPEC.md CHANGELOG.md CONTRIBUTING.md LICENSE NOTICE bridge/METHODS.md bridge/SECURITY.md child/AGENT.md \
	cmd/OPERATIONS.md cmd/nexus-bench/FIGURES.md cmd/nexus-bench/scale.svg fixtures/page/screenshot.png fixtures/parent/parent.mjs supervisor/SUPERVISION.md
# It builds nothing, as sudo knows no go. A program that runs cannot be written to, but
# another can take its name, at once.
install: ## what make build made, in DESTDIR/PREFIX/bin, also where it runs
	@for program in $(PRODUCTS); do [ -x bin/$$program ] || \
	{ echo "there is no bin/$$program: run make build first, without sudo" >&2; exit 1; }; done
	@newer=$$(find . -name '*.go' -newer bin/nexus | head -n 1); [ -z "$$newer" ] || \
	echo "bin/nexus is older than $$newer: make build makes a new one" >&2
	mkdir -p '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/doc/nexus'
	@cd '$(DESTDIR)$(PREFIX)/bin' && for program in $(PRODUCTS); do \
	cp '$(CURDIR)'/bin/$$program .$$program.new && mv -f .$$program.new $$program || exit 1; \
	echo '$(DESTDIR)$(PREFIX)'/bin/$$program; done
	@for page in $(PAGES); do mkdir -p "$$(dirname '$(DESTDIR)$(PREFIX)/share/doc/nexus/'$$page)" && \
	cp $$page '$(DESTDIR)$(PREFIX)/share/doc/nexus/'$$page || exit 1; done

clean: ## removes bin/
	rm -rf bin
