"""Class-wise Dirichlet deals: every index exactly once, a function of the labels and the seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsecure.errors import DataError
from fedsecure.randomness import numpy_generator

__all__ = ["dirichlet_partition"]

Index = npt.NDArray[np.int64]

#: Deals tried before the setting is called impossible. FedAF page, 3.1: up to 5 were needed at alpha = 0.02.
MAX_DEALS = 1000


def dirichlet_partition(y: Index, num_classes: int, nodes: int, alpha: float, min_size: int, seed: int) -> list[Index]:
    """Class by class, proportions over the nodes drawn from Dirichlet(``alpha``) (FedAF page, section 3.1).

    A node that already holds n / ``nodes`` records or more when a class is dealt gets none of it; everything is
    redealt until each node has ``min_size`` records. ``y``: int64 (n,). Returns the indices of each node, int64
    (n_k,). Raises ``DataError`` when there are too few records, or ``MAX_DEALS`` deals did not suffice.
    """
    if not (nodes >= 1 and alpha > 0 and min_size >= 0):
        raise DataError(f"cannot deal to {nodes} nodes with alpha {alpha:g} and min_size {min_size}")
    if nodes * min_size > len(y):
        raise DataError(
            f"{len(y)} records cannot give {nodes} nodes at least {min_size} each", hint="lower nodes or min_size"
        )
    rng = numpy_generator(seed, "partition", "dirichlet")
    for _ in range(MAX_DEALS):
        parts = _deal_once(y, num_classes, nodes, alpha, rng)
        if parts is not None and min(len(part) for part in parts) >= min_size:
            return parts
    raise DataError(
        f"{MAX_DEALS} deals with alpha {alpha:g} leave one of {nodes} nodes fewer than {min_size} of {len(y)} records",
        hint="raise alpha, or lower nodes or min_size",
    )


def _deal_once(y: Index, num_classes: int, nodes: int, alpha: float, rng: np.random.Generator) -> list[Index] | None:
    """One deal; ``None`` when a draw is degenerate (every node that may still receive drew nothing)."""
    dealt: list[list[Index]] = [[] for _ in range(nodes)]
    sizes = np.zeros(nodes, dtype=np.int64)
    for c in range(num_classes):
        index = rng.permutation(np.flatnonzero(y == c))  # (n_c,)
        share = rng.dirichlet(np.full(nodes, alpha)) * (sizes * nodes < len(y))  # (nodes,)
        total = np.cumsum(share)
        if not len(index):
            continue
        if not (np.isfinite(total[-1]) and total[-1] > 0):
            return None
        cuts = np.floor(total[:-1] / total[-1] * len(index)).astype(np.int64)
        for k, part in enumerate(np.split(index, cuts)):
            dealt[k].append(part)
            sizes[k] += len(part)
    return [np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64) for parts in dealt]
