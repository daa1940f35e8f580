# make setup | demo | test | lint. Every target does the set-up it needs; a second call reuses it.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.switchmem-setup

# PyTorch goes in first and by exact version, so that pip never upgrades it while it resolves the rest. On Linux the
# wheel of the default index carries CUDA (several GB). For a CPU-only machine, take the small build:
#   make setup TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0

.PHONY: setup demo test lint typecheck clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

# The pocket world, end to end on a CPU. Finished stages are reused, so a second call ends within a minute.
demo: setup
	$(BIN)/python train.py fit --config pocket.yaml
	$(BIN)/python train.py test --config pocket.yaml

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: setup
	$(BIN)/mypy

test: lint typecheck
	$(BIN)/pytest

clean:
	rm -rf runs .mypy_cache .pytest_cache .ruff_cache build ./*.egg-info
