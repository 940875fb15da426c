# make run     the broker and name server on loopback, everything installed into .venv first
# make test    all tests, the official Java, Go and Node clients among them
# make check   lint, types, layers, unit tests: under two minutes
# make fast    the hot modules compiled in place by mypyc, from the same sources; `make pure` undoes it
# make trial   how long a newcomer waits: clone, make run, the first message
# make bench   the speed table, against the real Java broker on the same machine
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= data
ARGS ?=
PYTEST_ARGS ?=
# Processes that run tests side by side, a file of tests in one of them: much of a test's time is waiting.
WORKERS ?= 5
# Without it each of the hundreds of processes that the tests start compiles all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run trial fast pure test check check-static prepared lint types unit bench bench-balance bench-quick bench-brokers bench-failover bench-instructions bench-lake bench-peers bench-spark setup clean
.DEFAULT_GOAL := help
help:
	@grep '^# make' Makefile | cut -c3-

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "PocketMQ needs Python 3.11 or newer: make PYTHON=python3.12 run"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -f $@; echo "no virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.broker: pyproject.toml | $(BIN)/python
	@echo "installing PocketMQ into $(VENV): once, a minute or so"
	$(BIN)/python -m pip install --disable-pip-version-check --only-binary :all: -e '.[broker,console]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@ $(VENV)/.broker

run: $(VENV)/.broker
	@exec $(BIN)/pocketmq up --data $(DATA) $(ARGS)

trial:
	@$(PYTHON) tools/trial.py

fast: $(VENV)/.dev
	$(BIN)/python tools/compiled.py --in-place

pure: $(BIN)/python
	$(BIN)/python tools/compiled.py --remove

# The peers' toolchains: taken from the machine, installed by apt where that is possible.
setup: $(VENV)/.dev
	@tools/setup.sh

# The type checker uses one core: the other builds the peers and rewrites the tests' assertions meanwhile.
test: setup
	@$(MAKE) --no-print-directory -j2 check-static prepared
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

prepared: $(VENV)/.dev
	@$(BIN)/python -m tests.peers
	@$(BIN)/python -m pytest --collect-only -q >/dev/null 2>&1 || true

check: check-static unit

check-static: $(VENV)/.dev
	$(BIN)/ruff check -q
	$(BIN)/ruff format -q --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow" tests/remoting tests/store tests/broker tests/namesrv tests/client tests/house

bench: setup
	$(BIN)/python -m benchmarks.compare $(ARGS)
	$(BIN)/python -m benchmarks.bench_brokers
	$(BIN)/python -m benchmarks.bench_replicas
	$(BIN)/python -m benchmarks.bench_failover
	$(BIN)/python -m benchmarks.bench_grpc --messages 20000 --rounds 2

bench-failover: setup
	$(BIN)/python -m benchmarks.bench_failover $(ARGS)

bench-brokers: setup
	$(BIN)/python -m benchmarks.bench_brokers $(ARGS)

bench-balance: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench_balance $(ARGS)

bench-quick: setup
	$(BIN)/python -m benchmarks.compare --quick $(ARGS)

# What the broker executes for one message; ARGS="--against HEAD~1" for a comparison.
bench-instructions: $(VENV)/.dev
	$(BIN)/python -m benchmarks.instructions $(ARGS)

bench-peers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench_peers $(ARGS)
	$(BIN)/python -m benchmarks.bench_celery

bench-lake: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench_lake $(ARGS)

bench-spark: setup
	$(BIN)/python -m benchmarks.bench_spark $(ARGS)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
