# Everything needs only Go and make; race needs a C compiler as well, lint,
# oracles and dist the network once, for their modules. Where there are node and python3, test runs what is
# written for them.
#
# Programs and tests are compiled with the same settings, so that each package is
# compiled once. Without C a program is one file that runs on any system of its
# kind, and a child starts a quarter faster.
export GOFLAGS := $(GOFLAGS) -trimpath -buildvcs=false
export CGO_ENABLED := 0

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
# The time of the files of make dist, in seconds since 1970.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
BIN      ?= bin
PREFIX   ?= $(HOME)/.local
FUZZTIME ?= 5000x
CHAOSFLAGS ?= --minutes 1 --seed 1
# How long one package may take on a machine that does little else: the longest takes 100 to 200 s of
# two cores. A test that waits for ever is then named soon.
TIMEOUT  ?= 4m
# What make test leaves to make test-long: tests of cmd/nexus, and packages, with all below them.
LONG     := ^Test(Cluster|Chaos|Coming|Doctor|Documented|FlagsAre|Fork|GoModule|Install|KilledTest|LeavingEarly|Limits|NothingIsLeft|Picture|Probe|Programs|Strangers|Top|TypedAhead|Unread)|OfPrograms$$|Terminal|Editor|OfMCP
APART    := /(supervisor/cluster|child/codecheck|child/foreign|child/sandbox|child/toolenv|cmd/nexus-bench|cmd/nexus-child)(/|$$)
# A fork's module has another path.
MODULE    = $(shell sed -n 's/^module //p' go.mod)
LDFLAGS   = -s -w -X $(MODULE)/cmd/internal/version.linked=$(VERSION) -X $(MODULE)/cmd/internal/version.commit=$(COMMIT)
# What people get; the demonstration needs no more.
PRODUCTS := nexus nexus-child nexus-rpc nexus-cluster
PROGRAMS := $(PRODUCTS) nexus-bench
TOOL     := $(GO) tool -modfile=.ci/tools/go.mod

.DEFAULT_GOAL := help
.PHONY: help build generate test unit scripts foreign clients soak fuzz race lint bench chaos cross module demo test-browser test-long test-agents oracles clean install uninstall dist test-dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the programs, in bin/
	$(GO) build -ldflags '$(LDFLAGS)' -o '$(BIN)/' $(PROGRAMS:%=./cmd/%)

# They run side by side, as each waits for much of its time.
test: ## what a change is most likely to break, in five minutes of two processors
	@$(MAKE) --no-print-directory -j3 $(if $(filter output-sync,$(.FEATURES)),-O) unit scripts foreign

# Under -short, tests that kill or race over and over do it less often: see soak. One package more than there
# are processors is tested at once, as some wait.
unit:
	$(GO) vet ./...
	$(GO) test -short -vet=off -ldflags=-w -p $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )) -timeout $(TIMEOUT) $$($(GO) list ./... | grep -Ev -e '/cmd(/nexus)?$$' -e '$(APART)')

# These look at programs and packages that the test cache does not see.
scripts: build
	NEXUS_BIN='$(CURDIR)/bin' $(GO) test -short -count=1 -parallel 8 -timeout $(TIMEOUT) -skip '$(LONG)' ./cmd ./cmd/nexus

test-long: clients ## what takes longer: nexus-child over a pipe, the walls of agents, checkers of code, machines that are killed and drain, chaos, agents of other makes, terminals, editors, installations, limits, a fork, the clients' packages and types
	@[ -n "$$NEXUS_ACP_SDK" ] || echo 'not run: fixtures/acp/editor.mjs, as NEXUS_ACP_SDK names no @agentclientprotocol/sdk'
	NEXUS_BIN='$(CURDIR)/bin' $(GO) test -short -timeout $(TIMEOUT) $$($(GO) list ./... | grep -E '$(APART)')
	NEXUS_BIN='$(CURDIR)/bin' $(GO) test -short -count=1 -parallel 8 -timeout $(TIMEOUT) -run '$(LONG)' ./cmd/nexus

soak: fuzz chaos ## what takes longer: whole kill tests and races, fuzzing, chaos
	bin/nexus chaos --cluster 3 --minutes 1 --seed 1
	@files=$$(grep -rl --include='*_test.go' 'testing\.Short()' .); \
	tests=$$(awk '/^func / { test = $$2; sub(/[(].*/, "", test) } /testing[.]Short[(]/ { print test }' $$files | sort -u | paste -sd '|' -); set -x; \
	NEXUS_BIN='$(CURDIR)/bin' $(GO) test -count=1 -parallel 8 -timeout 40m -run "^($$tests)$$" $$(dirname $$files | sort -u)

foreign: build ## programs in other languages: a parent of nexus-child, the clients (need node, python3)
	@if command -v node >/dev/null; then node fixtures/parent/parent.mjs bin/nexus-child; \
	else echo 'not run: fixtures/parent/parent.mjs, as there is no node here'; fi
	@if node -e 'process.exit(globalThis.AbortSignal?.any ? 0 : 1)' 2>/dev/null; then \
	cd bridge/client/typescript && node --test --test-reporter=dot tests/client.test.mjs tests/addresses.test.mjs; \
	else echo 'not run: bridge/client/typescript, as there is no node 20.3 here'; fi
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then \
	cd bridge/client/python && python3 -B -m unittest -q; \
	else echo 'not run: bridge/client/python, as there is no python3 3.9 here'; fi

clients: build ## the clients' packages, installed, and their types and those of the samples (need node, npm, python3, tsc, pyright)
	@if node -e 'process.exit(globalThis.AbortSignal?.any ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null; then \
	cd bridge/client/typescript && node --test --test-reporter=dot tests/package.test.mjs; \
	else echo 'not run: the package of bridge/client/typescript, as there is no npm here'; fi
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then \
	cd bridge/client/python && python3 -B -m unittest -q tests.installed; \
	else echo 'not run: the package of bridge/client/python, as there is no python3 3.9 here'; fi
	@.ci/types

fuzz: ## each fuzz target for FUZZTIME (executions as 3000x, or a duration)
	@GO='$(GO)' .ci/fuzz $(FUZZTIME)

test-browser: build ## the page, in a headless Chromium (UPDATE=1: its picture, too)
	@[ -n "$$NEXUS_AXE" ] || echo 'not run: axe-core on the page, as NEXUS_AXE names no axe.min.js'
	cd .ci/browser && $(GO) vet . && NEXUS_BIN=$(CURDIR)/bin $(GO) test -count=1 .

# The go.mod of this and of oracles follows that of nexus, by itself (-mod=mod).
test-agents: build ## agents of other makes, from npm, with a played model (needs node, npm and the network once)
	cd .ci/agents && $(GO) vet -mod=mod . && NEXUS_BIN='$(CURDIR)/bin' $(GO) test -mod=mod -count=1 -timeout 60m -v .

oracles: ## the providers' wires, beside what the vendors' SDKs make of them (needs the network once)
	cd .ci/oracles && $(GO) vet -mod=mod . && $(GO) test -mod=mod -count=1 .

race: ## the tests again, under the race detector (needs a C compiler)
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GO) test -race -short -count=1 -timeout 40m ./...

lint: ## golangci-lint and deadcode, built from .ci/tools
	$(TOOL) golangci-lint run ./...
	@dead=$$($(TOOL) deadcode -test ./...) || exit 1; \
	if [ -n "$$dead" ]; then echo "$$dead"; echo 'unreachable code: see above' >&2; exit 1; fi

bench: build ## what nexus costs, beside the floors of this machine (BENCHFLAGS=-quick: in half a minute)
	$(GO) build -ldflags '-s -w' -o bin/nexus-bench-floor ./cmd/nexus-bench/floor
	bin/nexus-bench $(BENCHFLAGS)

chaos: build ## a server under attack, for a minute (CHAOSFLAGS='--minutes 10 --seed 7'; KIND=acp: with agents of another make)
ifeq ($(KIND),)
	bin/nexus chaos $(CHAOSFLAGS)
else
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && mkdir "$$dir/state" && $(GO) build -o "$$dir/fakeagent" ./fixtures/fakeagent && \
	bin/nexus chaos --kind $(KIND) $(CHAOSFLAGS) -- "$$dir/fakeagent" $(KIND) --fault by-prompt --state "$$dir/state"
endif

module: ## gives the tree of a fork its own module path: MODULE=example.org/you/nexus
	@.ci/module '$(MODULE)'

# The descriptions are compiled into the tests that come after them.
generate: ## what follows from the tables of methods and verbs: golden answers, reference, clients, man pages
	UPDATE=1 $(GO) test -count=1 ./bridge/openrpc -run Descriptions
	UPDATE=1 $(GO) test -count=1 ./bridge -run 'TestGolden$$'
	UPDATE=1 $(GO) test -count=1 ./bridge/openrpc ./bridge/client/generate
	UPDATE=1 $(GO) test -count=1 ./cmd/nexus ./cmd/nexus-child ./cmd/nexus-rpc ./cmd/nexus-cluster -run 'TestManualPage$$'

# Those that cmd/OPERATIONS.md names, beside the one that compiles.
SYSTEMS := linux/amd64 linux/arm64 linux/riscv64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64 freebsd/riscv64
cross: ## the programs for every system that they are said to build for, thrown away
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && for system in $(SYSTEMS); do \
	case $$system in freebsd/riscv64) programs='$(patsubst %,./cmd/%,$(filter-out nexus-cluster,$(PROGRAMS)))';; (*) programs='$(PROGRAMS:%=./cmd/%)';; esac; \
	GOOS=$${system%/*} GOARCH=$${system#*/} $(GO) build -ldflags '-s -w' -o "$$dir/" $$programs || exit 1; \
	echo "ok   build $$system"; done

demo: PROGRAMS = $(PRODUCTS)
demo: build ## two agents, one killed in mid-sentence, back with its memory
	@sh fixtures/scripts/demo.sh bin

# The pages link to each other by these paths.
PAGES := README.md SPEC.md CHANGELOG.md CONTRIBUTING.md LICENSE NOTICE bridge/METHODS.md bridge/SECURITY.md child/AGENT.md child/FOREIGN.md \
	cmd/OPERATIONS.md cmd/nexus-bench/FIGURES.md cmd/nexus-bench/scale.svg fixtures/page/screenshot.png fixtures/terminal/lobby.svg fixtures/terminal/conversation.svg \
	fixtures/terminal/approval.svg fixtures/terminal/top.svg fixtures/parent/parent.mjs supervisor/SUPERVISION.md
# What make install puts where, as FROM:TO; and shells' completions, as SHELL:PROGRAM:TO.
COPIES := $(foreach page,$(PAGES),$(page):share/doc/nexus/$(page)) \
	$(foreach program,$(PRODUCTS),fixtures/man/$(program).1:share/man/man1/$(program).1)
COMPLETIONS := $(foreach program,nexus nexus-rpc,bash:$(program):share/bash-completion/completions/$(program) \
	zsh:$(program):share/zsh/site-functions/_$(program) fish:$(program):share/fish/vendor_completions.d/$(program).fish)
# systemd looks for the units of one user in other places than for those of all.
SYSTEMD ?= $(filter Linux,$(shell uname -s))
UNITS = $(if $(SYSTEMD),$(shell case '$(PREFIX)' in ("$$HOME"/*) echo fixtures/systemd/user/nexus.service:share/systemd/user/nexus.service;; \
	(*) echo fixtures/systemd/nexus.service:lib/systemd/system/nexus.service fixtures/systemd/user/nexus.service:lib/systemd/user/nexus.service;; esac))
# Completions are of programs that run here.
RUNS ?= $(BIN)

# It builds nothing, as sudo knows no go. A program that runs cannot be written to, but
# another can take its name, at once.
install: ## what make build made, in DESTDIR/PREFIX, also where it runs; with man pages, completions and units
	@for program in $(PRODUCTS); do [ -x '$(BIN)'/$$program ] || \
	{ echo "there is no $(BIN)/$$program: run make build first, without sudo" >&2; exit 1; }; done
	@newer=$$(find . -name '*.go' ! -name '*_test.go' -newer '$(BIN)'/nexus | head -n 1); [ -z "$$newer" ] || \
	echo "$(BIN)/nexus is older than $$newer: make build makes a new one" >&2
	@umask 022; to='$(DESTDIR)$(PREFIX)'; place() { mkdir -p "$$to/$$(dirname "$$1")" && cat > "$$to/$$1" && chmod 644 "$$to/$$1"; }; \
	mkdir -p "$$to/bin" && for program in $(PRODUCTS); do \
	cp '$(BIN)'/$$program "$$to/bin/.$$program.new" && chmod 755 "$$to/bin/.$$program.new" && mv -f "$$to/bin/.$$program.new" "$$to/bin/$$program" || exit 1; \
	echo "$$to/bin/$$program"; done; \
	for copy in $(COPIES); do place "$${copy#*:}" < "$${copy%%:*}" || exit 1; done; \
	for unit in $(UNITS); do sed 's|/usr/local/bin/|$(PREFIX)/bin/|' "$${unit%%:*}" | place "$${unit#*:}" || exit 1; done; \
	for completion in $(COMPLETIONS); do program=$${completion#*:}; \
	text=$$('$(RUNS)'/$${program%%:*} completion $${completion%%:*}) && printf '%s\n' "$$text" | place "$${program#*:}" || exit 1; done

uninstall: ## removes what make install put in DESTDIR/PREFIX; agents and their homes stay
	@to='$(DESTDIR)$(PREFIX)'; for program in $(PRODUCTS); do rm -f "$$to/bin/$$program" || exit 1; done; \
	for file in $(COPIES) $(UNITS) $(COMPLETIONS); do rm -f "$$to/$${file##*:}" || exit 1; done; \
	if [ -d "$$to/share/doc/nexus" ]; then find "$$to/share/doc/nexus" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi

dist: ## archives, .deb, .rpm and container images of the products, in dist/: the same bytes wherever they are made
	cd .ci/dist && GOOS= GOARCH= $(GO) run . -source '$(CURDIR)' -out '$(CURDIR)/dist' -version '$(VERSION)' -commit '$(COMMIT)' -time '$(SOURCE_DATE_EPOCH)'

test-dist: dist ## what is in dist/: made again elsewhere and compared, installed, run and removed
	cd .ci/dist && $(GO) vet . && NEXUS_DIST='$(CURDIR)/dist' $(GO) test -count=1 .

clean: ## removes bin/ and dist/
	rm -rf bin dist
