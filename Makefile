# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PART ?=
ENGINE ?=
CONSOLE ?=
SCENE ?=
SUITE ?=
BASE ?=
CIBUILDWHEEL := 4.3.3
KERNELS := src/headrace/kernels/_kernels.so
SHORT := not compat_jvm and not compat_go and not compat_js and not compat_image and not soak
# What tests leave out because something is missing here, told at the end.
LEFT_OUT := $(CURDIR)/build/left-out.txt
# Which tests of a row of the drawings passed, failed or were left out.
ROWS := $(CURDIR)/build/rows.txt
# Live tests that failed once and passed when they were run again, told at the end.
UNSTABLE := $(CURDIR)/build/unstable.txt
RECORDED := HEADRACE_LEFT_OUT=$(LEFT_OUT) HEADRACE_ROWS=$(ROWS) $(BIN)/python -m
DURATIONS := --durations=15 --durations-min=1
PYTEST := $(RECORDED) pytest $(DURATIONS)
LIVE_PYTEST := $(RECORDED) tests.harness.run_again $(UNSTABLE) $(DURATIONS)
TELL_UNSTABLE := @$(BIN)/python -m tests.harness.run_again $(UNSTABLE)
TELL_LEFT_OUT := @$(BIN)/python -m tests.harness.left_out $(LEFT_OUT)
TELL_ROWS := @$(BIN)/python -m tests.harness.row_summary $(ROWS)
# Tests of these folders share nothing with each other, so that every core takes its part.
ALONE := tests/unit tests/property tests/contract tests/simulation
# These start nodes, Spark and clients and mostly wait: two files at a time. tests/gate.toml says which run when.
LIVE := tests/compat tests/integration tests/spark tests/docs
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
MISSING_PACKAGES = $(if $(shell command -v ip),,iproute2) $(if $(shell command -v chromium),,chromium fonts-dejavu-core)
FIND_JAVA = $(BIN)/python -m headrace.java
JAVA_PACKAGES := openjdk-21-jre-headless openjdk-17-jre-headless
# Empty for root; otherwise a command that fails instead of asking for a password.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -n)
# Tests start hundreds of Python processes: with bytecode each of them starts in half the time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help tour recording pictures rows setup java demo test check packages lint coverage dist wheels licences bench bench-compare compat soak faults compatibility docs docs-serve lock sbom audit clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## make .venv with every extra

$(STAMP): requirements.lock pyproject.toml hatch_build.py $(wildcard src/headrace/kernels/*.[ch]) src/headrace/kernels/build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headrace needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(MAKE) --no-print-directory java
	@touch $@

java: ## install a Java runtime where apt-get does it without a question; elsewhere say how
	@$(FIND_JAVA) >/dev/null 2>&1 || { \
	  if command -v apt-get >/dev/null && $(AS_ROOT) true 2>/dev/null; then \
	    $(AS_ROOT) apt-get update --quiet; \
	    for package in $(JAVA_PACKAGES); do \
	      $(AS_ROOT) apt-get install --quiet --yes --no-install-recommends $$package && break; done; fi; \
	  $(FIND_JAVA) >/dev/null || \
	  echo "Without Java, Spark, ZooKeeper and Apache Kafka are left out of the demo and the tests."; }

demo: setup ## play all scenes of `headrace demo`; SCENE=NAME: one; ENGINE=kafka: on Apache Kafka; CONSOLE=1: in the browser, too
	@$(BIN)/headrace demo --pictures artifacts $(if $(SCENE),--scene $(SCENE)) $(if $(ENGINE),--engine $(ENGINE)) \
	  $(if $(CONSOLE),--console --report demo-report.html)

tour: setup ## write docs/tour.md from a run of the demo, then `make rows`
	$(BIN)/headrace demo --tour docs/tour.md --pictures docs/pictures
	@$(MAKE) --no-print-directory rows

pictures: setup ## write the console's pictures in docs/pictures from a live cluster (needs Chromium)
	$(BIN)/python -m tests.harness.console_pictures docs/pictures

recording: setup ## write docs/pictures/demo.svg from two scenes of the demo
	$(BIN)/python -m tests.harness.recording docs/pictures/demo.svg

rows: setup ## run every test of a drawing; when all passed, write the list of them into docs/tour.md
	@mkdir -p build && rm -f $(LEFT_OUT) $(ROWS)
	$(PYTEST) $(ALONE) -n auto --dist loadfile -m "row and $(SHORT)"
	$(PYTEST) $(LIVE) -n 2 --dist loadfile -m "row and not serial and $(SHORT)"
	$(PYTEST) $(LIVE) -m "row and serial and $(SHORT)"
	$(TELL_LEFT_OUT)
	$(TELL_ROWS) --all
	$(BIN)/python -m tests.harness.drawings docs/tour.md $(ROWS)

lint: setup ## ruff check and format, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint ## the quick gate: lint, unit tests, 50 seeds, a live pass of every capability; under 8 minutes
	@mkdir -p build && rm -f $(LEFT_OUT) $(ROWS) $(UNSTABLE)
	HEADRACE_SEEDS=50 $(PYTEST) $(ALONE) -n auto --dist loadfile -m "$(SHORT)"
	$(LIVE_PYTEST) $(LIVE) -n 2 --dist loadfile -m "quick and $(SHORT)"
	$(TELL_UNSTABLE)
	$(TELL_LEFT_OUT)
	$(TELL_ROWS)

check: packages test ## the full suite, before anything lands on main: test, then all other seeds and live tests
	HEADRACE_SEEDS=50-300 $(PYTEST) tests/simulation -m "seeds and $(SHORT)"
	$(LIVE_PYTEST) $(LIVE) -n 2 --dist loadfile -m "not quick and not serial and $(SHORT)"
	$(LIVE_PYTEST) $(LIVE) -m "serial and not quick and $(SHORT)"
	$(TELL_UNSTABLE)
	$(TELL_LEFT_OUT)
	$(TELL_ROWS) --all

coverage: setup ## lines and branches that the fast tests reach, into build/coverage; fails below the floor of pyproject.toml
	$(BIN)/python -m pytest tests/unit tests/property tests/contract -n auto --dist loadfile -q -m "$(SHORT)" \
	  --cov --cov-report=term:skip-covered --cov-report=html

packages: ## install Debian packages that live tests use, where we are root; elsewhere such tests are skipped
	@if [ -n "$(strip $(MISSING_PACKAGES))" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends $(MISSING_PACKAGES); } || \
	  echo "could not install $(MISSING_PACKAGES): tests that need them are skipped"; fi

compat: MISSING_PACKAGES += $(if $(shell command -v debootstrap),,debootstrap)
compat: setup packages ## JVM, Go and JavaScript clients, every CLI command against Apache Kafka, the Dockerfile in a clean root
	@mkdir -p build && rm -f $(LEFT_OUT) $(ROWS)
	$(PYTEST) tests/compat tests/spark -m "compat_jvm or compat_go or compat_js or compat_image"
	$(TELL_LEFT_OUT)

soak: setup ## long tests; PART=NAME runs one
	$(BIN)/python -m pytest tests -m soak $(if $(PART),-k $(PART))

faults: setup ## write the tables of docs/evidence/faults.md from the reports of make soak
	$(BIN)/python -m tests.harness.fault_counts docs/evidence/faults.md

bench: setup ## us and Apache Kafka in one run; SUITE=node (or groups, transactions, arrow, spark, cluster, gray, console, security, testing, healing, growth) runs one
	$(BIN)/python -m bench $(SUITE)

bench-compare: setup ## broker CPU per request: the commit BASE against this tree
	@test -n "$(BASE)" || { echo "make bench-compare BASE=COMMIT"; exit 1; }
	git worktree remove --force build/base 2>/dev/null || true
	git worktree add --force --detach build/base $(BASE)
	$(if $(wildcard $(KERNELS)),$(BIN)/python -m headrace.kernels.build build/base/src/headrace/kernels)
	$(BIN)/python -m bench.compare_commits build/base .

dist: ## build dist/: the sdist, and from it the wheel of this machine; with CC= (empty) the pure Python wheel
	rm -rf build/dist dist && $(PYTHON) -m venv build/dist
	build/dist/bin/pip install --quiet build
	build/dist/bin/python -m build --outdir dist .

wheels: ## build dist/ with cibuildwheel: the wheels that a release has for this system; Linux: needs Docker
	rm -rf build/wheels && $(PYTHON) -m venv build/wheels
	build/wheels/bin/pip install --quiet cibuildwheel==$(CIBUILDWHEEL)
	build/wheels/bin/python -m cibuildwheel --output-dir dist

compatibility: setup ## run the tests behind docs/compatibility.md; when all passed, write its table
	@mkdir -p build
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "$(SHORT)" --junitxml build/compatibility.xml $$($(BIN)/python -m tests.harness.compatibility tests)
	$(BIN)/python -m tests.harness.compatibility write docs/compatibility.md build/compatibility.xml

docs: setup ## build the documentation site into build/site; open build/site/index.html, no network needed
	$(MKDOCS) build --strict

docs-serve: setup ## show the site at http://127.0.0.1:8000 and build it again while you write
	$(MKDOCS) serve

lock: ## refresh requirements.lock, with hashes, from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --upgrade pip
	build/lock/bin/pip install --quiet '.[arrow,dev,bench,spark,zookeeper]'
	build/lock/bin/pip freeze --exclude headrace | sed "s/^uvloop==.*/& ; sys_platform != 'win32'/" > requirements.lock
	build/lock/bin/python -m tests.harness.lock_hashes requirements.lock

licences: setup ## write docs/licences.md from the metadata of the packages that users install
	$(BIN)/python -m tests.harness.licences docs/licences.md

sbom: ## write build/sbom.json: the components of requirements.lock (CycloneDX)
	$(PYTHON) -m tests.harness.sbom requirements.lock build/sbom.json

audit: ## ask for advisories about requirements.lock; says so when the service cannot be reached
	rm -rf build/audit && $(PYTHON) -m venv build/audit
	build/audit/bin/pip install --quiet pip-audit || true
	$(PYTHON) -m tests.harness.audit build/audit/bin/pip-audit requirements.lock

clean: ## remove what the targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .hypothesis
