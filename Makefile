# One command for each task. The first one you run creates .venv; all it needs is Python 3.11 or newer.

# The first interpreter that is new enough; choose another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.installed
WORKERS ?= 2
WORKLOADS ?= fit_a_line mnist_mlp lenet
PYTEST := $(BIN)/python -m pytest --quiet --numprocesses $(WORKERS) --dist worksteal

# Tests that also run as users do, with XLA's default compiler settings: convolutions, products, recurrences, Adam,
# embeddings, chapters of the book, click-through rates. The rest of the suite compiles fast instead (tests/conftest.py).
TRAINING := $(addprefix tests/golden/test_training.py::test_training, \
	[models/fit-a-line] [models/mnist-mlp-adam] [models/lenet-adam] [models/transformer-encoder] \
	[models/recommender-sparse] [books/understand-sentiment-conv] [books/understand-sentiment-stacked-lstm] \
	[books/word2vec] [books/recommender-system])
AS_USERS := tests/kernels/test_adam.py tests/kernels/test_matmul.py tests/kernels/test_regions.py tests/ops/nn/test_conv.py tests/ops/nn/test_norm.py \
	tests/ops/nn/test_softmax.py tests/ops/nn/test_embedding.py $(TRAINING) \
	tests/end_to_end/test_examples.py::test_an_example_learns[distributed_ctr.py]

.PHONY: demo test test-as-users test-all lint types format bench record-golden help

help:
	@echo "make demo           train with 2 parameter servers and 2 trainers on this machine, next to a local run"
	@echo "make test           check style and types, then run all tests"
	@echo "make test-as-users  run a few tests with XLA's default settings;  make test-all  runs all, compiled fast"
	@echo "make lint           check style;  make format  fixes it"
	@echo "make types          check types"
	@echo "make bench          measure steps per second"
	@echo "make record-golden ORACLE=path/to/python [FAMILY=nets]    record the results of real Fluid again"

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "refluid needs Python 3.11 or newer, and found none"; exit 1; }
	@echo "creating .venv, which takes a minute or two ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python examples/local_and_distributed.py

# The quick checks first; the summary of the whole suite last.
test: $(READY)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory test-as-users
	@$(MAKE) --no-print-directory test-all

test-as-users: $(READY)
	@XLA_FLAGS= $(PYTEST) $(foreach test,$(AS_USERS),'$(test)')

test-all: $(READY)
	@$(PYTEST)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

types: $(READY)
	@$(BIN)/pyright

# Next to real Fluid with ORACLE=path/to/python; see bench/README.md.
bench: $(READY)
	@$(BIN)/python bench/run.py $(if $(ORACLE),--python "$(ORACLE)") --python $(CURDIR)/$(BIN)/python $(WORKLOADS)

record-golden:
	@test -n "$(ORACLE)" || { echo "name an interpreter with paddlepaddle 1.8.5: make record-golden ORACLE=path/to/python"; exit 1; }
	PYTHONPATH=tests $(ORACLE) tests/golden/record.py $(FAMILY)
