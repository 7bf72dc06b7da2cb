# The commands of the README are `make demo`, `make demo-shop` and `make test`; `make help` lists the rest.
# Needs only Python >= 3.11, pip and make: the first call builds .venv from requirements.txt, whose hashes
# pip checks. Tests against a real etcd also need Go; where it is missing one line says that they are left out.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
PIP_FLAGS := --disable-pip-version-check --no-input --quiet --progress-bar off
# An interpreter of your choice: make PYTHON=/path/to/python3.12 ...
PYTHON ?=
# Simulated clusters run by `make sim` and at the end of `make test`, and the first seed.
SEEDS ?= 2000
FROM ?= 0
# The chaos run of the shop: how long it kills, and its seed (0: one is drawn and told).
MINUTES ?= 10
SEED ?= 0
# How long `make torture` breaks replicas. (SECONDS is bash's own: it must not reach the shell.)
SECONDS ?= 60
override SECONDS_ := $(SECONDS)
unexport SECONDS
# What Python compiles is kept, also where an environment forbids that: pytest compiles each module of tests anew otherwise,
# which takes 47 s of a start where 9 s are enough.
export PYTHONDONTWRITEBYTECODE :=
# Workers for tests; two cores are what the time limits are made for.
JOBS ?= 2
LOCK_HOW := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url
# PySpark is larger than all the rest together, Kafka's client is for those who read from Kafka, and ClickHouse's engine for
# tests alone: they have pins of their own, see lab/spark.py, lab/kafka.py and lab/clickhouse.py.
EXTRAS := etcd fast oidc operator otel postgresql simulation topics webhook
LOCK := uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --group dev --group bench --group docs $(LOCK_HOW)
# What the image holds, and what builds its wheel: the same versions, fewer packages.
LOCK_IMAGE := uv pip compile pyproject.toml --extra etcd --extra fast --extra oidc --extra operator --extra otel --extra postgresql --extra topics --extra kafka --constraint requirements.txt --constraint requirements-kafka.txt $(LOCK_HOW)
LOCK_ALONE := uv pip compile - $(LOCK_HOW)
LOCK_BUILD := uv pip compile - --constraint requirements.txt $(LOCK_HOW)

.PHONY: help install demo demo-upgrade demo-flights demo-ambrosia demo-shop demo-shop-record test lint format quick single pythons processes ambrosia spark kafka clickhouse etcd postgresql sim driver-image coverage bench bench-messaging bench-upgrades bench-foreign bench-data lock lock-check \
	sim-record torture clean derived changelog docs helm packages image kubernetes bench-cluster cluster-up cluster-down test-cluster test-driver-pods

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# Compiled here because an environment may forbid Python to do so at first use (PYTHONDONTWRITEBYTECODE): each process of a
# replica would then compile all it imports, which takes three times as long as the rest of its start.
install: $(VENV)/.installed ## Build .venv from the locked requirements (done once, by itself)
	@$(BIN)/python -m compileall -q runtime operator

$(VENV)/.created:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; python=; \
	done; \
	if [ -z "$$python" ]; then echo 'Python >= 3.11 is needed: none on the search path, and none named by PYTHON=' >&2; exit 1; fi; \
	echo "Building $(VENV) with $$("$$python" --version)"; \
	if "$$python" -c 'import ensurepip' 2>/dev/null; then "$$python" -m venv --clear $(VENV); \
	else "$$python" -m venv --clear --without-pip $(VENV); fi; \
	"$$python" -c 'import sys; print(sys.executable)' > $@

# A system without ensurepip lends its own pip to the new environment.
$(VENV)/.requirements: requirements.txt $(VENV)/.created
	@echo 'Installing the locked requirements'
	@if $(BIN)/python -c 'import pip' 2>/dev/null; then pip='$(BIN)/python -m pip'; \
	else pip="$$(cat $(VENV)/.created) -m pip --python $(BIN)/python"; fi; \
	$$pip install $(PIP_FLAGS) --no-deps --require-hashes -r requirements.txt && $$pip check
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.requirements
	@if $(BIN)/python -c 'import pip' 2>/dev/null; then pip='$(BIN)/python -m pip'; \
	else pip="$$(cat $(VENV)/.created) -m pip --python $(BIN)/python"; fi; \
	$$pip install $(PIP_FLAGS) --no-deps --no-build-isolation -e .
	@touch $@

demo: install ## Run a replicated bank and kill its primary as often as you like
	@$(BIN)/deathless demo

demo-upgrade: install ## Give a bank other code while it is called, with kills at the worst moments
	@$(BIN)/deathless demo --upgrade

demo-shop: install postgresql ## Kill a process of the shop each second for MINUTES=10, then compare its books (SEED=n)
	@$(BIN)/python -m examples.shop.chaos --minutes $(MINUTES) --seed $(SEED)

demo-shop-record: install postgresql ## The same, and its verdict in examples/shop/last-verdict.md
	@$(BIN)/python -m examples.shop.chaos --minutes $(MINUTES) --seed $(SEED) --record examples/shop/last-verdict.md

demo-flights: install postgresql ## Kill what carries the flights of 2013, each second for MINUTES=10 (SEED=n; installs Spark and Kafka once)
	@$(BIN)/python -m examples.flights.demo --minutes $(MINUTES) --seed $(SEED)

demo-ambrosia: install ## Kill a Go program and a Python service that call each other, every 3 s for MINUTES=10 (SEED=n; Python where Go is missing)
	@$(BIN)/python -m examples.foreign.orders.demo --minutes $(MINUTES) --seed $(SEED)

test: lint etcd helm postgresql single spark kafka clickhouse sim processes ## Check and test everything (more than an hour on two cores)
	@echo 'make test: all passed'

lint: install ## Static checks: style, types (twice), import direction, dependencies
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/pyrefly check
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/deptry runtime operator

format: install ## Rewrite the tree in the house format
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format

etcd: install ## Build the etcd that the tests run against (once; needs Go)
	@status=0; $(BIN)/python lab/etcd.py || status=$$?; test $$status -eq 0 -o $$status -eq 3

helm: install ## Build what renders the charts and evaluates their alerts (once; needs Go)
	@status=0; $(BIN)/python lab/kubernetes.py helm alert-tests || status=$$?; test $$status -eq 0 -o $$status -eq 3

postgresql: install ## Install the PostgreSQL that the tests run against (once; needs root and apt-get)
	@status=0; $(BIN)/python -m lab.postgresql >/dev/null || status=$$?; test $$status -eq 0 -o $$status -eq 3

SINGLE := $(BIN)/pytest -n $(JOBS) --dist worksteal -m 'not spark and not kafka and not clickhouse and not process and not etcd and not root and not apiserver and not cluster'

quick: install ## The short ones of the tests that run in one process: under two minutes
	@$(SINGLE) --quick

single: install ## All tests that run in one process
	@$(SINGLE) --durations=40 --durations-min=5

# Each has its own environment, .venv-3.<minor>; the one of .venv is tested by `make test`.
pythons: ## Run the tests of one process on each Python from 3.11 to 3.14 that this machine has (10 minutes each)
	@ran=(); \
	for minor in 11 12 13 14; do \
	  for python in $$(type -aP python3.$$minor || true) $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.$$minor.*/bin/python; do \
	    if "$$python" -c "import sys; sys.exit(sys.version_info[:2] != (3, $$minor))" 2>/dev/null; then \
	      $(MAKE) --no-print-directory VENV=.venv-3.$$minor PYTHON="$$python" single; ran+=(3.$$minor); break; \
	    fi; \
	  done; \
	done; \
	echo "make pythons: all passed on $${ran[*]}"

# Two files at a time: nine tenths of their processor time is the start of processes. More of them would starve processes,
# and one that is starved looks like a dead one. A wait that is too long ends by its own deadline first.
processes: install ## Tests that start, kill and freeze real processes
	@status=0; $(BIN)/python -m lab.packages tests || status=$$?; test $$status -eq 0 -o $$status -eq 3
	@$(BIN)/pytest -n $(JOBS) --dist loadfile --durations=25 --durations-min=5 -o faulthandler_timeout=600 -m 'process or etcd or root' tests/process tests/conformance

# All of it is a part of `processes` as well, so `make test` runs it there, once.
AMBROSIA := tests/process/test_ambrosia_*.py tests/process/test_application.py
ambrosia: install ## Tests of services whose code is a program in another language alone (a part of `make processes`)
	@$(BIN)/pytest -n $(JOBS) --dist loadfile --durations=10 --durations-min=5 -o faulthandler_timeout=600 $(AMBROSIA)

# One after the other: a Spark driver takes a core and a half while it starts.
spark: install ## Tests with a real Spark: pipelines whose drivers are killed and frozen (installs 460 MB once)
	@status=0; folder=$$($(BIN)/python -m lab.spark) || status=$$?; \
	if test $$status -eq 3; then echo "$$folder"; elif test $$status -ne 0; then exit $$status; else \
	  PYTHONPATH="$$folder" $(BIN)/pytest --durations=10 --durations-min=5 -o faulthandler_timeout=600 -m spark tests/spark; fi

kafka: install ## Tests with a real Kafka: brokers that are killed, topics that are made anew (installs 60 MB once)
	@status=0; folder=$$($(BIN)/python -m lab.kafka) || status=$$?; \
	if test $$status -eq 3; then echo "$$folder"; elif test $$status -ne 0; then exit $$status; else \
	  PYTHONPATH="$$folder" $(BIN)/pytest --durations=10 --durations-min=5 -o faulthandler_timeout=600 -m kafka tests/kafka; fi

clickhouse: install ## Tests with ClickHouse: a server that is killed, and the engine of today (installs 550 MB once)
	@status=0; told=$$($(BIN)/python -m lab.clickhouse engine) || status=$$?; \
	if test $$status -eq 3; then echo "$$told"; elif test $$status -ne 0; then exit $$status; else \
	  $(BIN)/pytest --durations=10 --durations-min=5 -o faulthandler_timeout=600 -m clickhouse tests/clickhouse; fi

packages: install ## Install what the cluster needs of Debian's packages (root), or say what is missing
	@status=0; $(BIN)/python -m lab.packages cluster || status=$$?; test $$status -eq 0 -o $$status -eq 3

kubernetes: install ## Build the Kubernetes that the cluster tests run on (once, 10 minutes; needs Go)
	@status=0; $(BIN)/python lab/kubernetes.py || status=$$?; test $$status -eq 0 -o $$status -eq 3

image: packages ## Build the container image; writes build/deathless-image.tar (needs root and buildah)
	@status=0; $(BIN)/python tools/image.py || status=$$?; test $$status -eq 0 -o $$status -eq 3

driver-image: packages ## Build the image for drivers of pipelines; writes build/deathless-driver-image.tar (needs root and buildah)
	@status=0; $(BIN)/python tools/image.py --target driver || status=$$?; test $$status -eq 0 -o $$status -eq 3

cluster-up: image ## Start a real cluster, a control plane and three workers, with our image in it
	@status=0; $(BIN)/python -m lab.cluster up build/deathless-image.tar || status=$$?; test $$status -eq 0 -o $$status -eq 3

cluster-down: install ## End it and remove what it left; images are kept for the next one
	@status=0; $(BIN)/python -m lab.cluster down || status=$$?; test $$status -eq 0 -o $$status -eq 3

# One after the other: each breaks the cluster that all share. A wait that is too long ends by its own deadline first.
bench-cluster: kubernetes packages ## Measure on a real cluster (its own, or the running one); writes bench/results/kubernetes.json
	@status=0; $(BIN)/python -m bench.kubernetes.run --build || status=$$?; test $$status -eq 0 -o $$status -eq 3

# Where this machine can run none, one line says what for; an API server alone needs no more than its program. Nothing is
# built for tests that would not begin.
test-cluster: install ## End-to-end tests on a real cluster (its own, or the one of `make cluster-up`)
	@if test -n "$${TESTS_END_AT:-}" && test "$$(date +%s)" -ge "$$TESTS_END_AT"; then \
	  echo 'cluster and API server left out: the time for tests (TESTS_END_AT) is over'; exit 0; fi; \
	status=0; $(BIN)/python -m lab.packages cluster >/dev/null || status=$$?; test $$status -eq 0 -o $$status -eq 3; \
	status=0; $(BIN)/python -m lab.cluster possible || status=$$?; \
	case $$status in \
	  0) $(BIN)/python lab/kubernetes.py || test $$? -eq 3; $(BIN)/python tools/image.py || test $$? -eq 3; \
	    marks='apiserver or cluster';; \
	  3) marks='apiserver';; \
	  *) exit $$status;; \
	esac; \
	$(BIN)/pytest --durations=40 --durations-min=5 -o faulthandler_timeout=1500 -m "($$marks) and not driver_pods" tests/apiserver tests/cluster
	@echo 'pods of drivers left out: make test-driver-pods runs them (15 minutes)'

test-driver-pods: kubernetes packages ## Tests of pipelines whose drivers are pods of a real cluster (15 minutes; builds an image of 770 MB)
	@status=0; $(BIN)/python -m lab.cluster possible || status=$$?; \
	if test $$status -eq 0; then $(BIN)/pytest --durations=10 -o faulthandler_timeout=2400 -m driver_pods tests/cluster; \
	elif test $$status -ne 3; then exit $$status; fi

sim: install ## Simulate SEEDS=n clusters, the first with seed FROM=m; in every tenth several services call each other
	@$(BIN)/python -m deathless.simulation --seeds $(SEEDS) --from $(FROM)

# Two sets of real replicas; exit code 3: a tool is missing, and one line says which.
torture: install ## Break real replicas in every way at once for SECONDS=60 (SEED=n), judged by porcupine and a second log reader
	@status=0; PYTHONPATH=.:tests/process $(BIN)/python -m tests.torture --seconds $(SECONDS_) --seed $(SEED) || status=$$?; test $$status -eq 0 -o $$status -eq 3

# An hour's worth on two cores.
sim-record: SEEDS = 10000
sim-record: install ## Simulate SEEDS=n runs of several services, an hour of them when not said; writes docs/simulation.md
	@$(BIN)/python -m deathless.simulation --services --seeds $(SEEDS) --from $(FROM) --record docs/simulation.md

coverage: install ## Show that codec and core are covered by their own tests
	@for layer in base codec core execution protocols; do \
	  $(BIN)/pytest -q --cov=deathless.$$layer --cov-branch --cov-report=term-missing --cov-fail-under=100 \
	    tests/unit/deathless/$$layer; \
	done

bench: install ## Measure; writes bench/results/latest.json
	@$(BIN)/python -m bench

bench-messaging: install postgresql ## Measure services that talk and wait; writes bench/results/messaging.json
	@$(BIN)/python -m bench --messaging

bench-upgrades: install ## Measure other code for a service; writes bench/results/upgrades.json
	@$(BIN)/python -m bench --upgrades

bench-foreign: install ## Measure services whose code is a program in another language; writes bench/results/foreign.json
	@$(BIN)/python -m bench --foreign

bench-data: install postgresql ## Measure rows that come in and go out, and pipelines; writes bench/results/data.json
	@status=0; for each in kafka "clickhouse engine" spark; do \
	  $(BIN)/python -m lab.$$each || status=$$?; test $$status -eq 0 -o $$status -eq 3; done
	@$(BIN)/python -m bench --data

lock: install ## Resolve again after a change of dependencies; writes requirements*.txt
	@$(BIN)/$(LOCK) --output-file requirements.txt
	@echo 'confluent-kafka>=2.16,<3' | $(BIN)/$(LOCK_ALONE) --output-file requirements-kafka.txt
	@$(BIN)/$(LOCK_IMAGE) --output-file requirements-image.txt
	@echo 'chdb-core>=26.9,<27' | $(BIN)/$(LOCK_ALONE) --no-deps --output-file requirements-clickhouse.txt
	@echo 'hatchling>=1.33,<2' | $(BIN)/$(LOCK_BUILD) --output-file requirements-build.txt
	@echo 'pyspark>=4.3,<4.4' | $(BIN)/$(LOCK_ALONE) --output-file requirements-spark.txt

# The copy's pins are kept where they still fit, so a new release elsewhere changes nothing.
lock-check: install ## Compare requirements.txt with a new resolution (asks the package index)
	@mkdir -p build
	@cp requirements.txt build/requirements.txt
	@$(BIN)/$(LOCK) --output-file build/requirements.txt
	@diff -u requirements.txt build/requirements.txt
	@cp requirements-image.txt requirements-build.txt requirements-spark.txt requirements-kafka.txt requirements-clickhouse.txt build/
	@$(BIN)/$(LOCK_IMAGE) --output-file build/requirements-image.txt
	@diff -u requirements-image.txt build/requirements-image.txt
	@echo 'hatchling>=1.33,<2' | $(BIN)/$(LOCK_BUILD) --output-file build/requirements-build.txt
	@diff -u requirements-build.txt build/requirements-build.txt
	@echo 'pyspark>=4.3,<4.4' | $(BIN)/$(LOCK_ALONE) --output-file build/requirements-spark.txt
	@diff -u requirements-spark.txt build/requirements-spark.txt
	@echo 'confluent-kafka>=2.16,<3' | $(BIN)/$(LOCK_ALONE) --output-file build/requirements-kafka.txt
	@diff -u requirements-kafka.txt build/requirements-kafka.txt
	@echo 'chdb-core>=26.9,<27' | $(BIN)/$(LOCK_ALONE) --no-deps --output-file build/requirements-clickhouse.txt
	@diff -u requirements-clickhouse.txt build/requirements-clickhouse.txt

derived: install ## Write what is made from the models: crds/, charts, tables, the reference page
	@for tool in crds chart reference rights; do $(BIN)/python tools/$$tool.py >/dev/null; done

changelog: install ## Move the fragments of changes/ into CHANGELOG.md under VERSION=x.y.z
	@test -n "$(VERSION)" || { echo 'Name the release: make changelog VERSION=x.y.z' >&2; exit 1; }
	@$(BIN)/towncrier build --yes --version "$(VERSION)"

docs: install ## Build the documentation's site in build/site (strict: a broken link fails)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## Remove the environment, caches and builds
	@rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find runtime tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
