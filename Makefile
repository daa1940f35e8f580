# make setup | demo | test | lint | browser. Every target does the set-up it needs; a second call reuses it.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.switchmem-setup

# PyTorch goes in first and by exact version, so that pip never upgrades it while it resolves the rest. On Linux the
# wheel of the default index carries CUDA (several GB). For a CPU-only machine, take the small build:
#   make setup TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0

.PHONY: setup demo figures test lint typecheck browser clean

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

# The README's figures, of a finished demo.
FIGURES := $(patsubst %,runs/pocket/report/figures/%.svg,policies frontier)
figures: demo
	cp $(FIGURES) docs/figures/

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: setup
	$(BIN)/mypy

# The report is tested in a real Chromium: $SWITCHMEM_CHROMIUM, or one on the path. Where there is none, root on Debian
# gets it from the distribution; anyone else is told, and those tests are skipped with the reason.
browser:
	@if [ -n "$$SWITCHMEM_CHROMIUM" ] || command -v chromium chromium-browser google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium for the browser tests"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } \
	    >/dev/null || echo "chromium could not be installed: the browser tests are skipped"; \
	else \
	  echo "no chromium: the browser tests are skipped; install one, or name its program in SWITCHMEM_CHROMIUM"; \
	fi

test: lint typecheck browser
	$(BIN)/pytest --numprocesses auto --dist loadfile

clean:
	rm -rf runs .mypy_cache .pytest_cache .ruff_cache build ./*.egg-info
