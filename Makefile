# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Tests wait for daemons a good part of their time: three workers on two cores.
WORKERS ?= 3

.PHONY: help demo audit-demo bench-audit test test-fast test-exhaustive lint proto install clean bench-fmnist bench-fmnist-dual bench-heart bench-cifar10-paper bench-secagg bench-dp bench-dp-step

help:
	@echo "make install  install into $(VENV), PyTorch and all; demo and test do it by themselves"
	@echo "make demo   install into $(VENV), then train FedAF and FedAvg over three nodes and mutual TLS (ARGS=\"--dp 8\": privately)"
	@echo "make audit-demo            what condensed digits tell of their members, by images per class, start and noise (15 minutes)"
	@echo "make test   install, then run every test"
	@echo "make test-exhaustive       every drop-out pattern of ten nodes, 200 kills, whole demonstrations (25 minutes)"
	@echo "make lint   ruff, mypy --strict, generated-code drift"
	@echo "make proto  regenerate fedsecure/*/v1 from proto/"
	@echo "make bench-fmnist          three methods on Fashion-MNIST at CPU size (an hour; resumable)"
	@echo "make bench-fmnist-dual     FedSPM, FedDRM and FedAvg under dual heterogeneity (hours; resumable)"
	@echo "make bench-heart           the same on four hospitals' heart-disease records (minutes; needs the records)"
	@echo "make bench-secagg          masked sums beside Flower's SecAgg+ (an hour; ARGS=--quick: minutes; resumable)"
	@echo "make bench-dp              accuracy against epsilon on Fashion-MNIST (an hour; ARGS=--help; resumable)"
	@echo "make bench-dp-step         the time of a private step over a plain one (minutes)"
	@echo "make bench-audit           membership against images per class, Fashion-MNIST, FedAF's own loop (an hour; resumable)"
	@echo "make bench-cifar10-paper   the paper's own setting on CIFAR-10 (needs a GPU and the data; resumable)"

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check "torch>=2.6" "torchvision>=0.21"
	$(BIN)/pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

install: $(STAMP)

demo: $(STAMP)
	$(BIN)/fedsecure demo --out demo-out $(ARGS)

# A leak is what it finds, and no fault: exit code 10.
audit-demo: $(STAMP)
	$(BIN)/fedsecure audit mechanism benchmarks/audit_demo.toml --out audit-demo-out $(ARGS) || test $$? -eq 10
	@echo "the report: audit-demo-out/report.html"

test: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup

test-fast: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not slow"

test-exhaustive: $(STAMP)
	FEDSECURE_EXHAUSTIVE=1 $(BIN)/pytest -n $(WORKERS) tests/unit/secagg/test_session_dropouts_of_ten.py \
		tests/integration/node/killed tests/integration/demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python proto/generate.py --check

proto: $(STAMP)
	$(BIN)/python proto/generate.py

bench-fmnist: $(STAMP)
	$(BIN)/python benchmarks/compare.py fmnist fmnist-fedaf fmnist-feddm fmnist-fedavg

bench-fmnist-dual: $(STAMP)
	$(BIN)/python benchmarks/dual.py one
	$(BIN)/python benchmarks/dual.py two

bench-heart: $(STAMP)
	$(BIN)/python benchmarks/heart.py

bench-secagg: $(STAMP)
	$(BIN)/python benchmarks/secagg.py $(ARGS)

bench-dp: $(STAMP)
	$(BIN)/python benchmarks/dp.py $(ARGS)

bench-dp-step: $(STAMP)
	$(BIN)/python benchmarks/dp_step.py $(ARGS)

bench-audit: $(STAMP)
	$(BIN)/python benchmarks/audit.py $(ARGS)

bench-cifar10-paper: $(STAMP)
	$(BIN)/python benchmarks/compare.py cifar10-paper cifar10-paper-fedaf cifar10-paper-feddm cifar10-paper-fedavg

clean:
	rm -rf $(VENV) demo-out audit-demo-out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
