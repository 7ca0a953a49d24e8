# One command for each habit. The first of them makes the environment by itself; all it needs is Python 3.11 or newer.

# The first interpreter found that is new enough; name another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.installed
WORKERS ?= 2
WORKLOADS ?= fit_a_line mnist_mlp lenet

.PHONY: demo test lint types format bench record-golden help

help:
	@echo "make demo           train with 2 parameter servers and 2 trainers here, beside a local run"
	@echo "make test           run all tests"
	@echo "make lint           check style;  make format  mends what can be mended"
	@echo "make types          check types"
	@echo "make bench          measure steps per second"
	@echo "make record-golden ORACLE=path/to/python [FAMILY=nets]    ask real Fluid for its answers again"

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "refluid needs Python 3.11 or newer, and found none"; exit 1; }
	@echo "making .venv, which takes a minute or two ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/local_and_distributed.py

test: $(READY)
	@$(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

types: $(READY)
	@$(BIN)/pyright

# Beside real Fluid with ORACLE=path/to/python; bench/README.md tells more.
bench: $(READY)
	@$(BIN)/python bench/run.py $(if $(ORACLE),--python "$(ORACLE)") --python $(CURDIR)/$(BIN)/python $(WORKLOADS)

record-golden:
	@test -n "$(ORACLE)" || { echo "say where paddlepaddle 1.8.5 is installed: make record-golden ORACLE=path/to/python"; exit 1; }
	PYTHONPATH=tests $(ORACLE) tests/golden/record.py $(FAMILY)
