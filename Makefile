# The commands of this repository. Needs only Python 3.11 or newer; everything else is installed into .venv.
#
#   make demo PYTHON=python3.12        another interpreter
#   make demo PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"     torch without CUDA on Linux
#   make test PYTEST_ARGS="-k layouts -x"

PYTHON ?= python3
VENV ?= .venv
PIP_ARGS ?=
PYTEST_ARGS ?=
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint test-slow bench gpu-check backend-check server-check train-decide clean

help:
	@echo "make demo       install what is needed into $(VENV), fetch the default model, run the demo"
	@echo "make test       style, types, import direction and the tests (slow ones left out)"
	@echo "make test-slow  the slow tests"
	@echo "make bench      our filter chain beside a plain transformers loop, figures in benchmarks/out"
	@echo "make gpu-check PYTHON=python3   on a CUDA machine: kernel tests, parity, figures in benchmarks/out/gpu; installs nothing"
	@echo "make backend-check PEER_PYTHON=/path/to/python   native and vLLM answers side by side, where both are installed"
	@echo "make server-check PEER_PYTHON=/path/to/python    backend=\"openai\" against vLLM's own server, started from that Python"
	@echo "make train-decide  train the decision model again: DATA=folder of training sets, WORKERS=cores; see training/README.md"
	@echo "make clean      remove $(VENV), caches and build outputs"

demo: $(VENV)/.demo
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

bench: $(VENV)/.dev
	mkdir -p benchmarks/out
	$(BIN)/python -m benchmarks.filter_chain --json benchmarks/out/filter_chain.json

# With the interpreter as it is: a GPU machine has its own torch and triton.
gpu-check:
	$(PYTHON) -m benchmarks.gpu_check --out benchmarks/out/gpu

backend-check:
	@test -n "$(PEER_PYTHON)" || { echo "name a Python that has vLLM and this package: PEER_PYTHON=..."; exit 1; }
	mkdir -p benchmarks/out
	$(PEER_PYTHON) -m benchmarks.backend_agreement --json benchmarks/out/backend_agreement.json

server-check:
	@test -n "$(PEER_PYTHON)" || { echo "name a Python that has vLLM and this package: PEER_PYTHON=..."; exit 1; }
	mkdir -p benchmarks/out
	$(PEER_PYTHON) -m benchmarks.server_check --json benchmarks/out/server_check.json

DATA ?= ../shared/training
WORKERS ?= 2
train-decide: $(VENV)/.dev
	$(BIN)/python -m training.train --data $(DATA) --workers $(WORKERS)
	$(BIN)/python -m training.finish --data $(DATA) --threads $(WORKERS)

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# A stamp is older than pyproject.toml or constraints.txt when the installed packages may be out of date.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_ARGS) --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_ARGS) --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $(VENV)/.demo $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "quail-frames needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
