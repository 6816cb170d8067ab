# Building needs Go only. "make" alone lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PHASE   := tools/phase.sh
GOTEST  := go run ./tools/gotest
TIMEOUT := 10m

# Tests that only start other programs, or read the source, have no races of their own to
# find; the code that these programs reach is tested under the race detector where it stands.
PROGRAMS := /tests/front|/tests/pyverbs|/tests/interop|/internal/tidy|/internal/arch
# Packages whose tests go by the wall clock or start other programs: of these up to three tests
# that failed get a second chance, when the machine does nothing else, and are reported.
REALTIME := /cmd/|/tests/(front|pyverbs|interop|conform)$$|/internal/(runner|daemon|netdev|netlab)$$|/rvt/node$$|/fabric/(udp|shm)$$|/verbs(/.*)?$$|/uverbs(/.*)?$$|/shim$$
RACEPKGS = $$(go list ./... | grep -vE '$(PROGRAMS)')

# What may be set on the command line.
FUZZTIME ?= 2
FUZZ     ?= .
BENCH    ?= .
COUNT    ?= 1
CAMPAIGN ?= 60
DEATHS   ?= 1000
HOSTILE  ?= 10m
MUTANTS  ?= 200
PAIRS    ?= 5
ACCEL    ?= tcg
WIRE     ?= memory
BESIDE   ?= 0
# The first of the seeds: new with each commit, the same for everybody who has that commit.
SEED     ?= $(shell printf '0x%.8s' "$$(git rev-parse HEAD 2>/dev/null || echo 1)")

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
		|| grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile bin/rvtsim, and what goes into programs if there is a C compiler
	@mkdir -p bin
	go build -o bin/rvtsim ./cmd/rvtsim
	@if tools/deps.sh have cc; then rm -f bin/shim-*.so && bin/rvtsim shim bin && bin/rvtsim engine --source . bin; \
	else echo "SKIP  the preload library and the engine: no C compiler"; fi

.PHONY: demo
demo: build ## two adapters exchange traffic over UDP on loopback
	bin/rvtsim run examples/two-nodes.yaml

# The order is that of cost: what fails in a second comes first.
.PHONY: test
test: deps fmt tidy vet lint cross test-race test-plain fuzz ## everything a change must pass, under 15 minutes on 2 cores
	@printf '\nmake test: passed. Lines that start with SKIP above say what did not run.\n'

.PHONY: deps
deps: ## install what the tests use, as root on Debian; else say what will be skipped
	@$(PHASE) "programs" tools/deps.sh

.PHONY: fmt
fmt: ## gofmt would change nothing
	@$(PHASE) "gofmt" bash -c 'bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "gofmt would change:"; echo "$$bad"; exit 1; }'

.PHONY: tidy
tidy: ## go mod tidy would change nothing
	@$(PHASE) "go mod tidy" go mod tidy -diff

.PHONY: vet
vet: ## go vet, with and without assertions
	@$(PHASE) "go vet" bash -c 'go vet ./... && go vet -tags invariants ./...'

.PHONY: lint
lint: ## staticcheck, at the version that go.mod pins
	@$(PHASE) "staticcheck" go tool staticcheck ./...

.PHONY: cross
cross: ## compile for a system that is not Linux
	@$(PHASE) "build for darwin" env GOOS=darwin go build ./...

.PHONY: test-race
test-race: ## tests under the race detector, with assertions, in random order
	@if tools/deps.sh have cc; then \
		$(PHASE) "tests, race detector" env RVTSIM_EXPECT_BUILD=race $(GOTEST) "-again=$(REALTIME)" -race -tags invariants -shuffle=on -timeout $(TIMEOUT) -- $(RACEPKGS); \
	else \
		$(PHASE) "tests, assertions only (SKIP race detector: no C compiler)" $(GOTEST) "-again=$(REALTIME)" -tags invariants -shuffle=on -timeout $(TIMEOUT) -- $(RACEPKGS); \
	fi

.PHONY: test-plain
test-plain: ## tests as the program is shipped; counts allocations
	@$(PHASE) "tests, plain build" env RVTSIM_EXPECT_BUILD=plain $(GOTEST) "-again=$(REALTIME)" -timeout $(TIMEOUT) -- ./...

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME seconds (FUZZ=pattern chooses some)
	@$(PHASE) "fuzz" tools/fuzz.sh $(FUZZTIME) '$(FUZZ)'

.PHONY: campaign
campaign: ## random worlds, configurations and programs, CAMPAIGN seconds each, from SEED on
	@$(PHASE) "campaign from seed $(SEED)" go test -tags invariants -count=1 -timeout 0 -v -run 'TestCampaign$$' \
		./tests/campaign -campaign.seeds=$(SEED)..0xffffffffffff -campaign.for=$(CAMPAIGN)s
	@$(PHASE) "one workload, many configurations" go test -tags invariants -count=1 -timeout 0 -v -run 'TestChangesTogether$$' \
		./tests/metamorphic -metamorphic.seed=$(SEED) -metamorphic.for=$(CAMPAIGN)s
	@$(PHASE) "device against reference" go test -tags invariants -count=1 -timeout 0 -run 'TestModel$$' \
		./tests/model -rapid.seed=$(SEED) -rapid.checks=$$(( $(CAMPAIGN) * 50 ))

.PHONY: mutate
mutate: ## plant MUTANTS faults (0: all) in qp, cq, swqe and see which the tests notice; slow
	@$(PHASE) "planted faults" go run ./tools/mutate -n $(MUTANTS) -seed $(SEED)

.PHONY: interop
interop: ## everything against Linux soft-RoCE in an emulated machine, as a table
	@mkdir -p out
	go test -c -o out/interop.test ./tests/interop
	@$(PHASE) "interoperation with soft-RoCE" out/interop.test -interop.full -test.timeout 30m

.PHONY: programs
programs: deps ## foreign programs in every combination, with the engine in both places and by both wires; slow
	@for how in daemon/udp program/memory program/udp; do $(PHASE) "foreign programs, engine in the $${how%/*}, packets by $${how#*/}" \
		$(GOTEST) -count=1 -timeout 30m -- ./tests/front -front.full -front.engine $${how%/*} -front.wire $${how#*/}; done
	@$(PHASE) "pyverbs" $(GOTEST) -count=1 -timeout 30m -- ./tests/pyverbs -pyverbs.full

.PHONY: deaths
deaths: ## kill DEATHS programs amid traffic: nothing may be left of them
	@$(PHASE) "$(DEATHS) deaths" $(GOTEST) -count=1 -timeout 60m -run 'TestKilledPrograms|TestPeerIsKilled' -- ./tests/front -front.deaths=$(DEATHS)

.PHONY: hostile
hostile: ## programs that misbehave, HOSTILE for each ABI, with SEED
	@$(PHASE) "hostile programs from seed $(SEED)" $(GOTEST) -count=1 -timeout 0 -run TestHostilePrograms -- ./tests/front -front.hostile=$(HOSTILE) -front.seed=$$(( $(SEED) ))

.PHONY: bench
bench: build ## unmodified perftest against UCX and libfabric over TCP, in PAIRS pairs, beside BESIDE processes that spin; appends to BENCHMARKS.md
	go run ./tools/versus -pairs $(PAIRS) -wire $(WIRE) -beside $(BESIDE)

.PHONY: bench-daemon
bench-daemon: build ## the same, and with the engine in the daemon as well
	go run ./tools/versus -pairs $(PAIRS) -daemon

.PHONY: bench-rxe
bench-rxe: build ## unmodified perftest against Linux soft-RoCE, both in one virtual machine, in PAIRS pairs
	go run ./tools/versus -softroce -accel $(ACCEL) -pairs $(PAIRS)

.PHONY: bench-scaling
bench-scaling: build ## many queue pairs, many programs, quiet and idle ones, in PAIRS rounds
	go run ./tools/versus -scaling -pairs $(PAIRS) -wire $(WIRE)

.PHONY: microbench
microbench: ## Go benchmarks into out/bench.txt (BENCH=pattern, COUNT=repetitions for benchstat)
	@mkdir -p out
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./... | tee out/bench.txt

.PHONY: bench-sim
bench-sim: ## virtual time: cost per event from 2 to 10,000 nodes, bytes per idle node and queue pair
	go test -run 'IsSmall|TenThousand' -v -bench 'World|Writes' -benchtime 2000000x -count $(COUNT) ./sim | grep -E 'bytes per|Benchmark|^(ok|FAIL|---)'

.PHONY: cover
cover: ## coverage by all tests together, into out/cover.html
	@mkdir -p out
	go test -tags invariants -coverpkg=./... -coverprofile=out/cover.out ./...
	go tool cover -html=out/cover.out -o out/cover.html
	@go tool cover -func=out/cover.out | tail -n 1

.PHONY: clean
clean: ## remove what the targets above made
	rm -rf bin out
