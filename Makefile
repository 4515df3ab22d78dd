# Everything that is run in a checkout. The first target that needs it makes a virtual environment in .venv, with the
# project installed from here: `make run` with what running needs, every other target with the tools for developing too.
# It is brought up to date when pyproject.toml has changed. Needs Python 3.11 or newer.

PYTHON ?= python3
VENV ?= .venv
DIST ?= dist
ARGS ?=

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
# What is installed: what running needs, and the tools for developing beside it.
RUNNING := $(VENV)/.installed
TOOLS := $(VENV)/.installed-tools

# An interpreter that was asked for by name is the only candidate.
ifeq ($(origin PYTHON),file)
CANDIDATES := $(PYTHON) python3.14 python3.13 python3.12 python3.11
else
CANDIDATES := $(PYTHON)
endif

# Ends with the reason if an interpreter cannot make the environment. An old one must be able to read it.
CHECK := import sys; \
    sys.version_info >= (3, 11) or sys.exit("this is Python %d.%d" % sys.version_info[:2]); \
    from importlib.util import find_spec; \
    find_spec("venv") and find_spec("ensurepip") or \
    sys.exit("it lacks the module venv or ensurepip (Debian: apt-get install python3-venv)")

# A test run starts hundreds of processes. If no compiled files may be kept, each of them compiles all of the project.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: run test lint style types contracts bench bench-curves bench-live demo soak fuzz mutants e2e venv clean help clients wheel lock image image-check

run: $(RUNNING) ## serve an example cluster on 127.0.0.1:8888
	$(BIN)/gpu-extender serve $(ARGS)

test: $(TOOLS) ## run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

lint: style types contracts ## check style, types and import contracts

style: $(TOOLS)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(TOOLS)
	$(BIN)/mypy

contracts: $(TOOLS)
	$(BIN)/lint-imports --no-cache --no-logo

bench: $(TOOLS) ## measure filter and prioritize at 10,000 nodes
	$(BIN)/python -m benchmarks.bench_filter $(ARGS)

bench-curves: $(TOOLS) ## measure what filter and prioritize cost along nodes, cards, containers, pods and policies
	$(BIN)/python -m benchmarks.curves -o docs/curves.json --plot docs/curves $(ARGS)

bench-live: $(TOOLS) ## measure a live extender at 10,000 nodes and 100,000 pods, and over a million events
	$(BIN)/python -m benchmarks.bench_live -o docs/bench_live.json $(ARGS)

demo: $(TOOLS) ## watch pods being placed and finished
	$(BIN)/python -m benchmarks.demo $(ARGS)

soak: $(TOOLS) ## the long forms: a million random events each of cards and quotas, allocations of every HAMi version, 200 kills of a live extender, 10,000 runs under faults, an hour of steady load
	$(INSTALL) --quiet --editable '.[oracle,fuzz]'
	$(BIN)/python -m benchmarks.placement_soak -o docs/placement_soak.json
	$(BIN)/python -m benchmarks.allocation_soak -o docs/allocation_soak.json
	$(BIN)/python -m benchmarks.soak -o docs/soak.json $(ARGS)
	$(BIN)/python -m benchmarks.soak --of quotas -o docs/soak_quotas.json $(ARGS)
	$(BIN)/python -m benchmarks.kill_run --points 200 -o docs/kill_run.json
	$(BIN)/python -m benchmarks.faults --runs 10000 -o docs/faults.json
	$(BIN)/python -m benchmarks.hostile_clients -o docs/hostile_clients.json
	$(BIN)/python -m benchmarks.malformed --bodies 10000 -o docs/malformed.json
	$(BIN)/python -m tests.fuzz --seconds 330 -o docs/fuzz.json
	$(BIN)/python -m benchmarks.steady_hour -o docs/steady_hour.json --plot docs/steady_hour

fuzz: $(TOOLS) ## let a fuzzer make up texts from outside, a minute for each kind; keeps what reaches new lines
	$(INSTALL) --quiet --editable '.[fuzz]'
	$(BIN)/python -m tests.fuzz $(ARGS)

mutants: $(TOOLS) ## change accounting/ in one place after another, and show which changes no test notices
	$(INSTALL) --quiet --editable '.[mutants]'
	$(BIN)/python -m benchmarks.mutants -o docs/mutants.json $(ARGS)

e2e: $(TOOLS) ## play scenarios on a real etcd, kube-apiserver and kube-scheduler; builds them first (needs Go)
	$(BIN)/python -m tests.e2e $(ARGS)

clients: $(TOOLS) ## build helm, and kubectl where there is none, for the tests of the chart and the manifests (needs Go)
	$(BIN)/python -m tests.e2e.clients $(ARGS)

wheel: $(TOOLS) ## build the wheel, the source distribution and the CycloneDX SBOM into dist/
	rm -rf $(DIST)
	$(BIN)/python -m hatchling build -d $(DIST)
	$(INSTALL) --quiet --editable '.[release]'
	$(BIN)/cyclonedx-py requirements image/requirements.lock --pyproject pyproject.toml --mc-type application \
	    --output-reproducible --of JSON -o $(DIST)/sbom.cdx.json

lock: $(TOOLS) ## write image/requirements.lock anew, with the hashes of every file
	$(INSTALL) --quiet --editable '.[release]'
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-annotate --no-emit-index-url \
	    --no-emit-trusted-host --no-emit-find-links --allow-unsafe -o image/requirements.lock pyproject.toml

image: wheel ## build the container image gpu-extender:VERSION, with podman, docker or buildah
	@engine=$$(command -v podman || command -v docker || command -v buildah) || \
	    { echo 'error: no podman, docker or buildah; `make image-check` needs none' >&2; exit 1; }; \
	"$$engine" build -f image/Containerfile -t "gpu-extender:$$($(BIN)/gpu-extender --version | cut -d ' ' -f 2)" .

image-check: $(TOOLS) ## build the image's root file system without an engine, and run it as the manifests say (root, mmdebstrap)
	$(BIN)/python -m tests.e2e --newest --scenario image $(ARGS)

venv: $(TOOLS) ## make or refresh the virtual environment only, with the tools for developing

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find accounting extender tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## show this text
	@echo 'usage: make TARGET [ARGS="..."] [PYTHON=python3]'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(RUNNING): pyproject.toml
	@found=; reasons=; \
	for python in $(CANDIDATES); do \
	    if ! command -v "$$python" >/dev/null; then reason="not found"; \
	    elif reason=$$("$$python" -c '$(CHECK)' 2>&1); then found=$$python; break; fi; \
	    reasons="$$reasons\n  $$python: $$(echo "$$reason" | head -n 1)"; \
	done; \
	if [ -z "$$found" ]; then \
	    printf 'error: no Python 3.11 or newer with venv; name one with PYTHON=...%b\n' "$$reasons" >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$found" --version)"; "$$found" -m venv $(VENV)
	$(INSTALL) --editable .
	@touch $@

$(TOOLS): $(RUNNING)
	$(INSTALL) --editable '.[dev]'
	@touch $@
