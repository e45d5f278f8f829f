# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
WORKERS ?= 2

.PHONY: help demo test test-fast lint proto install clean bench-fmnist

help:
	@echo "make demo   install into $(VENV), then train FedAF and FedAvg over three nodes and mutual TLS"
	@echo "make test   install, then run every test"
	@echo "make lint   ruff, mypy --strict, generated-code drift"
	@echo "make proto  regenerate fedsecure/wire/v1 from proto/"
	@echo "make bench-fmnist   the paper's comparison on Fashion-MNIST (minutes to hours; resumable)"

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "torch>=2.6" "torchvision>=0.21"
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev,bench]"
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/fedsecure demo --out demo-out

test: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup

test-fast: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python proto/generate.py --check

proto: $(STAMP)
	$(BIN)/python proto/generate.py

bench-fmnist: $(STAMP)
	$(BIN)/python benchmarks/fmnist.py

clean:
	rm -rf $(VENV) demo-out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
