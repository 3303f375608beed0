# `make run` and `make test` set everything up by themselves: Python 3.11 or newer is all that must be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
SCENARIO ?= scenarios/llama3-405b-16k.yaml

.PHONY: run test prove bench lint types imports schema dist clean help

help:            ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ -/'

run: $(VENV)/.run-ready        ## the main job: Llama 3 405B on 16,384 H100 for 54 days
	$(BIN)/clustersim run $(SCENARIO) $(ARGS)

test: $(VENV)/.test-ready      ## all tests but the long proofs
	$(BIN)/python -m pytest -q -n auto $(ARGS)

prove: $(VENV)/.test-ready     ## the long proofs: statistics, fresh environments, real kills
	$(BIN)/python -m pytest -q -m prove --junitxml=build/proofs.xml $(ARGS)

bench: $(VENV)/.test-ready     ## how fast, and how much memory
	$(BIN)/python -m tests.benchmarks $(ARGS)

lint: $(VENV)/.test-ready      ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

schema: $(VENV)/.run-ready     ## write scenarios/schema.json and docs/reference.md anew
	$(BIN)/clustersim schema > scenarios/schema.json
	$(BIN)/python docs/generate.py

dist: $(VENV)/.test-ready      ## wheel and sdist into dist/
	$(BIN)/python -m build --outdir dist

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed; make PYTHON=python3.11"'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/.test-ready: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.run-ready

clean:           ## remove what was built (the environment stays)
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
