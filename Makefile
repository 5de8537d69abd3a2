# Two commands: `make demo` installs, gets the default pair and opens the page; `make test` runs the suite.
# On a machine where the plain torch package is a multi-gigabyte CUDA build and no GPU is there, point
# TORCH_FLAGS at a CPU-only wheel index, for example: make demo TORCH_FLAGS="--index-url <CPU wheel index>".
PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_FLAGS ?=
VENV ?= .venv
HOST ?= 127.0.0.1
PORT ?= 7860
BIN = $(VENV)/bin
ARGS ?=

.PHONY: demo test lint setup clean

demo: $(VENV)/.demo
	$(BIN)/dominotree setup
	$(BIN)/python app.py --open --host $(HOST) --port $(PORT) $(ARGS)

test: $(VENV)/.dev lint
	$(BIN)/dominotree setup
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.demo

$(VENV)/.torch:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_FLAGS) "$(TORCH)"
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.demo pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
