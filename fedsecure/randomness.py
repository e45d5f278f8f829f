"""Seeds and generators for *reproducible* randomness: model initialisation, batches, noise images.

Nothing here may protect a secret. Key material and the noise of differential privacy come from the operating
system's generator and accept no seed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["derive_seed", "node_seed", "numpy_generator", "server_seed", "torch_generator"]


def derive_seed(seed: int, *labels: str | int) -> int:
    """A 63-bit seed for one purpose: SHA-256 over ``seed`` and ``labels``, each length-prefixed.

    Two different label tuples give independent streams, so no caller shares a stream by accident.
    """
    digest = hashlib.sha256()
    for item in (seed, *labels):
        text = f"{type(item).__name__}:{item}".encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def numpy_generator(seed: int, *labels: str | int) -> np.random.Generator:
    """A numpy generator (PCG64) of its own for ``labels``."""
    return np.random.default_rng(derive_seed(seed, *labels))


def torch_generator(seed: int, *labels: str | int) -> torch.Generator:
    """A CPU ``torch.Generator`` of its own for ``labels``; draws are made on the CPU and moved, so that every
    device sees the same numbers."""
    import torch

    generator = torch.Generator(device="cpu")
    generator.manual_seed(derive_seed(seed, *labels))
    return generator


def server_seed(plan_seed: int) -> int:
    """The seed of everything that the coordinator of a run draws."""
    return derive_seed(plan_seed, "coordinator")


def node_seed(plan_seed: int, node_id: str) -> int:
    """The seed of a node whose plan says ``randomness = "plan"``: known to all; for simulations, tests and demos.

    With ``randomness = "private"`` a node draws its seed from the operating system instead and keeps it.
    """
    return derive_seed(plan_seed, "node", node_id)
