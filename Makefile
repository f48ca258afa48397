.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# tests/conftest.py says what belongs to one worker, and what begins first.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations=25
PACKAGES := -c constraints.txt -e '.[dev,interop]'
# Where uv finds Torch: beside pip's other wheels, else where builds without CUDA are for a machine without a GPU.
FROM := $(if $(PIP_FIND_LINKS),UV_FIND_LINKS="$(PIP_FIND_LINKS)",UV_TORCH_BACKEND=auto)

export DO_NOT_TRACK = 1
export RAY_USAGE_STATS_ENABLED = 0
# Each of the many processes that tests start would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) uv && $(FROM) $(BIN)/uv pip install --quiet --python $(BIN)/python $(PACKAGES) || $(PIP) $(PACKAGES)
	touch $(STAMP)

install: $(STAMP) ## Set up .venv with the exact versions of constraints.txt

demo: $(STAMP) ## Expert, 500 recorded episodes, pruning, a cloned policy and its evaluation, on CartPole
	$(BIN)/offline expert-to-policy runs/demo -s expert.evaluation.target_return=490 -s pruning.where='return >= 400'

demo-distributed: $(STAMP) ## The same by recording actors, Ray Data, a pool of prelearners and two learners
	$(BIN)/offline expert-to-policy runs/demo-distributed -c examples/distributed.yaml -s expert.evaluation.target_return=490 -s pruning.where='return >= 400'

check: $(STAMP) ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check ## check, and the quick tests, in five minutes on two cores; this is what CI runs
	$(PYTEST) -m "not slow"

test-all: check ## check, and all tests: runs killed in each stage, schedules, automations, forms in a browser
	HYPOTHESIS_PROFILE=whole $(PYTEST)

browser: ## Install the Chromium that tests of forms drive, where root and apt are there
	command -v chromium || { apt-get update && apt-get install --yes --no-install-recommends chromium; }

postgres: ## Install the Postgres that tests of a shared server use, where root and apt are there
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { apt-get update && apt-get install --yes --no-install-recommends postgresql; }

docs: $(STAMP) ## Build the documentation as site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP) ## Measure the pipeline; one JSON line per figure
	$(BIN)/python -m benchmarks.pipeline
	$(BIN)/python -m benchmarks.data
	$(BIN)/python -m benchmarks.learning
	$(BIN)/python -m benchmarks.learned
	$(BIN)/python -m benchmarks.warm_start
	$(BIN)/python -m benchmarks.orchestration
	$(BIN)/python -m benchmarks.object_storage
	$(BIN)/python -m benchmarks.shards

bench-rllib: $(STAMP) ## The same example by RLlib and by us, on a quiet machine; one to two hours
	$(BIN)/python -m benchmarks.vs_rllib --report benchmarks/results/$(shell date +%F)-vs_rllib

format: $(STAMP) ## Format and fix what can be fixed by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove .venv, caches and what builds leave
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build dist site

.PHONY: help install demo demo-distributed check test test-all browser postgres docs bench bench-rllib format clean
