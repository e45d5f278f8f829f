"""The optimisers are those of torch.optim, bit for bit, and training with them imports no compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedsecure.optimizers import SGD, Adam

SETTINGS = [
    (SGD, torch.optim.SGD, {"lr": 0.1}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (Adam, torch.optim.Adam, {"lr": 0.01}),
    (Adam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.01}),
]
#: Every method learns in one process; what it then holds of the compiler is printed.
LEARN = """
import json, sys
from pathlib import Path
import numpy as np
from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.simulation import simulate

few = {"steps": 2, "batch": 4}
condensing = {"ipc": 1, "steps": 2, "min_count": 1, "server": {"epochs": 1, "batch": 4}}
METHODS = [
    {"name": "fedaf", **condensing},
    {"name": "feddm", **condensing, "image_optimizer": "sgd"},
    {"name": "fedavg", "local_steps": 2},
    {"name": "fedspm", "predict": few, "route": few},
    {"name": "feddrm", "predict": few, "route": few},
]
rng = np.random.default_rng(1)
data = Dataset(rng.random((8, 1, 8, 8), dtype=np.float32), np.arange(8) % 2, ("a", "b"))
for method in METHODS:
    raw = {
        "format": 1, "name": "learn", "rounds": 1, "method": method,
        "task": {"kind": "image", "classes": ["a", "b"], "shape": [1, 8, 8]},
        "model": {"name": "convnet", "depth": 2, "width": 4},
        "cohort": {"min_nodes": 2, "nodes": ["one", "two"]},
    }
    plan = validate(Plan, raw, "the plan")
    simulate(plan, build_method(plan), {"one": data, "two": data})
print("learnt", sorted({m for m in sys.modules if m in ("torch._dynamo", "torch._inductor")}))
"""


def leaves() -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=made).requires_grad_(True) for shape in ((5, 3), (7,), (2, 2))]


def walk(parameters: list[torch.Tensor], optimizer: SGD | Adam | torch.optim.Optimizer) -> list[torch.Tensor]:
    """Thirty steps; the middle parameter has no gradient in the first and in every fourth."""
    noise = torch.Generator().manual_seed(4)
    for step in range(30):
        optimizer.zero_grad()
        targets = [torch.randn(p.shape, generator=noise) for p in parameters]
        moved = [(p, t) for i, (p, t) in enumerate(zip(parameters, targets, strict=True)) if i != 1 or step % 4]
        torch.stack([(p - t).square().mean() for p, t in moved]).sum().backward()
        optimizer.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize(("ours", "theirs", "settings"), SETTINGS)
def test_they_are_those_of_torch_bit_for_bit(ours, theirs, settings):
    mine, reference = leaves(), leaves()
    found, due = walk(mine, ours(mine, **settings)), walk(reference, theirs(reference, **settings))
    for one, other, start in zip(found, due, leaves(), strict=True):
        assert torch.equal(one, other)
        assert not torch.equal(one, start)


def test_learning_imports_no_compiler():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEARN], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "learnt []\n"), done.stderr
