# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PART ?=
ENGINE ?=
SUITE ?=
SHORT := "not compat_jvm and not compat_go and not soak"
# These share nothing with each other, so that every core takes its part; the others start nodes, Spark and clients.
ALONE := tests/unit tests/property tests/contract tests/simulation

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench compat soak lock clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## make .venv with every extra

$(STAMP): requirements.lock pyproject.toml hatch_build.py $(wildcard src/headrace/kernels/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headrace needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: setup ## a node, consumers, a group, pipelines on Spark, a failover; ENGINE=kafka: on Apache Kafka
	@$(BIN)/python examples/demo.py $(if $(ENGINE),--engine $(ENGINE))

lint: setup ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint ## everything that must pass on main
	$(BIN)/python -m pytest $(ALONE) -n auto --dist loadfile -m $(SHORT)
	$(BIN)/python -m pytest tests $(ALONE:%=--ignore=%) -m $(SHORT)

compat: setup ## unmodified JVM and Go clients, and every CLI command against Apache Kafka
	$(BIN)/python -m pytest tests/compat tests/spark -m "compat_jvm or compat_go"

soak: setup ## long proofs; PART=NAME runs one
	$(BIN)/python -m pytest tests -m soak $(if $(PART),-k $(PART))

bench: setup ## us and Apache Kafka in one run; SUITE=node (or groups, arrow, spark, cluster) runs one
	$(BIN)/python -m bench $(SUITE)

lock: ## refresh requirements.lock from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --upgrade pip
	build/lock/bin/pip install --quiet '.[arrow,dev,bench,spark,zookeeper]'
	build/lock/bin/pip freeze --exclude headrace > requirements.lock

clean: ## remove what the targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
