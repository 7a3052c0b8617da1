# The ways in. A machine needs Python 3.11 or later, a C compiler and make; `.ci/environment` fetches
# the rest into .venv, and says what is missing and how to get it.
#
#   make demo    a gateway, an AMQP and a STOMP sender, a Spark query over both, checked
#   make web     an order board in a browser, by STOMP over WebSocket and Spark: examples/web; WEB="--port
#                8080" any option
#   make test    every test; TESTS=tests/storage some of them
#   make quick   the pure parts with fewer examples, without a process or a port: under a minute
#   make coverage  the same, and which branches of the pure parts it takes; fails below the floor
#   make check   format, lint, types, layers
#   make fmt     let ruff format and fix
#   make simulate  the store, the whole core over it, and both protocols over that, on a simulated
#                disk and network: SEEDS=n, CORE_SEEDS=n and WIRE_SEEDS=n of them, or SEED=k,
#                replayed and told; ONLY=storage, ONLY=core or ONLY=wire
#   make crash   SIGKILL under AMQP and STOMP load, ROUNDS=n times, and what was lost (nothing)
#   make kills   Spark carries messages on by source and sink, ROUNDS=n kills of gateway, driver and
#                workers: each message once
#   make power   the same with power cuts, on a file system that forgets what was not synced (as root)
#   make mutants   bugs planted in the journal, the core and the protocols, and how many seeds it
#                takes to catch each
#   make fuzz    damaged handshakes and frames of WebSocket, EXECUTIONS=n of them; FUZZ="--jobs 2" any
#                option
#   make attack  hostile peers, a while each: memory, descriptors, what an honest client feels; writes
#                docs/attack.md; ATTACK="--seconds 5 --only idle" any option
#   make soak    ten million messages on page files, a kill: memory, start, order, exact depth
#   make scenarios  docs/scenarios.md and docs/stomp-clauses.md: which rows are proved, and by which tests
#   make reference  docs/reference: configuration keys, commands and HTTP calls, from the code
#   make bench   messages a second; AGAINST=HOST:PORT pairs each AMQP row with another broker,
#                AGAINST_STOMP=HOST:PORT each STOMP row, BENCH="--rows amqp-in* --rounds 1" any option
#   make bench-store  what concurrent store and dispatch is worth: beside the serialized mode, on the
#                disk as it is and with syncs of 2 ms; what was not written; pages, recovery
#   make bench-pages  reading back from pages; BENCH="--against HOST:PORT --address NAME" beside another
#   make bench-stalls  the longest time that the reactor does nothing else while pages of a slow disk
#                are listed, browsed, drained, moved, emptied; BENCH="--delay 0.02" any option
#   make bench-tenants  what quiet tenants feel of a noisy one, with its quota and without
#   make bench-tabs  idle browser tabs over WebSocket: memory of each, and what active ones feel;
#                BENCH="--tabs 1000" any option
#   make bench-spark  what Spark reads and writes a second, beside the ceiling of its Python API, the
#                gateway's CPU a row, memory; BENCH="--rows 500000" any option of the first
#   make bench-archive  what the archive writes and reads a second, beside the plain read and Spark's
#                own Parquet; BENCH="--rows 500000" any option
#   make bench-history  a history of 10 GiB behind 256 MiB of disk, archived and read back; BENCH="--mib 512"
#                any option
#   make bench-growth  what a message costs in the core while queues, depth, consumers grow

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What is copied into the environment, not linked: a change here means another install.
COPIED := pyproject.toml .ci/environment gateway/twist_plugin.py \
	tests/interop/rhea/package-lock.json tests/interop/stompjs/package-lock.json \
	tests/interop/chromium/package-lock.json tests/examples/web/package-lock.json \
	tests/interop/jms/jars.sha256 gateway/spark/pyproject.toml \
	tests/spark/archive/versitygw/go.sum
WORKERS ?= 2
TESTS ?=
SEEDS ?= 3000
CORE_SEEDS ?= 1000
WIRE_SEEDS ?= 1000
ONLY ?=
WEB ?=
ROUNDS ?= 60
EXECUTIONS ?= 20000000

.PHONY: demo web test quick coverage check fmt simulate crash kills power mutants fuzz attack soak scenarios reference bench \
	bench-store bench-pages bench-stalls bench-tabs bench-tenants bench-spark bench-archive bench-history bench-growth clean
.DEFAULT_GOAL := test

$(STAMP): $(COPIED)
	@bash .ci/environment $(VENV)
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m gateway demo

web: $(STAMP)
	@$(BIN)/python examples/web $(WEB)

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup $(TESTS)

quick: $(STAMP)
	@SLUICEGATE_QUICK=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(TESTS)

coverage: $(STAMP)
	@SLUICEGATE_QUICK=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov $(TESTS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/architecture

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

simulate: $(STAMP)
	@$(if $(SEED),SEED=$(SEED) )$(BIN)/python -m tests.simulation --seeds $(SEEDS) \
		--core-seeds $(CORE_SEEDS) --wire-seeds $(WIRE_SEEDS) $(if $(ONLY),--only $(ONLY))

crash: $(STAMP)
	@$(BIN)/python -m tests.durability --rounds $(ROUNDS)

kills: $(STAMP)
	@$(BIN)/python -m tests.spark.kills --rounds $(ROUNDS)

power: $(STAMP)
	@$(BIN)/python -m tests.durability --power --rounds $(ROUNDS)

mutants: $(STAMP)
	@$(BIN)/python -m tests.mutants

fuzz: $(STAMP)
	@$(BIN)/python -m tests.protocols.websocket.fuzz --executions $(EXECUTIONS) $(FUZZ)

attack: $(STAMP)
	@$(BIN)/python -m tests.attack $(or $(ATTACK),--write)

soak: $(STAMP)
	@$(BIN)/python -m tests.paging.soak $(if $(MESSAGES),--messages $(MESSAGES))

scenarios: $(STAMP)
	@$(BIN)/python -m tests.conformance

reference: $(STAMP)
	@$(BIN)/python -m tests.reference

bench: $(STAMP)
	@$(BIN)/python -m gateway bench $(if $(AGAINST),--against $(AGAINST)) \
		$(if $(AGAINST_STOMP),--against-stomp $(AGAINST_STOMP)) $(BENCH)

bench-store: $(STAMP)
	@$(BIN)/python -m gateway.bench.store $(BENCH)

bench-pages: $(STAMP)
	@$(BIN)/python -m gateway.bench.pages $(BENCH)

bench-stalls: $(STAMP)
	@$(BIN)/python -m tests.paging.stalls $(BENCH)

bench-tenants: $(STAMP)
	@$(BIN)/python -m gateway.bench.tenants $(BENCH)

bench-tabs: $(STAMP)
	@$(BIN)/python -m gateway.bench.tabs $(BENCH)

bench-spark: $(STAMP)
	@$(BIN)/python -m gateway.bench.spark $(BENCH)
	@$(BIN)/python -m gateway.bench.spark_write
	@$(BIN)/python -m gateway.bench.spark_workers

bench-archive: $(STAMP)
	@$(BIN)/python -m gateway.bench.archive $(BENCH)

bench-history: $(STAMP)
	@$(BIN)/python -m gateway.bench.history $(BENCH)

bench-growth: $(STAMP)
	@$(BIN)/python -m gateway.bench.growth

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
