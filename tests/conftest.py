"""One thread for torch in every test process: tests run side by side, and results do not depend on the core count."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

from fedsecure.plan import Plan
from fedsecure.privacy import lease

# How long an example takes says something of the machine, not of what is tested.
hypothesis.settings.register_profile(
    "fedsecure", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("fedsecure")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test takes itself for a machine of its own: one process of a machine works on a data set, and tests that run
    side by side have the same records. Processes that a test starts are on the machine as it is."""
    monkeypatch.setattr(lease, "NAMESPACE", f"fedsecure-{zlib.crc32(bytes(tmp_path))}")


@pytest.fixture
def seeded_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What noise is made of comes from a seed: for tests of what is made of the noise, not of the noise."""
    generator = np.random.default_rng(0)

    def words(count: int) -> np.ndarray:
        return generator.integers(0, 2**64, count, dtype=np.uint64)

    for module in ("fedsecure.privacy.noise", "fedsecure.crypto.discretegaussian"):
        monkeypatch.setattr(f"{module}.random_words", words)


@pytest.fixture(scope="session")
def sum_plan() -> Callable[..., Plan]:
    """Makes a plan of two rounds for nodes a, b and c, with the given keys changed: for coordinators with a toy method
    that sums vectors."""

    def make(**changes: Any) -> Plan:
        raw = {
            "format": 1,
            "name": "sum",
            "rounds": 2,
            "seed": 5,
            "task": {"kind": "image", "classes": ["a", "b"], "shape": [1, 8, 8]},
            "model": {"name": "mlp"},
            "method": {"name": "fedavg", "local_epochs": 1},
            "cohort": {"min_nodes": 2, "nodes": ["a", "b", "c"]},
            "deadlines": {"join": 60.0, "exchange": 30.0},
        }
        return Plan.model_validate({**raw, **changes}, strict=False)

    return make
