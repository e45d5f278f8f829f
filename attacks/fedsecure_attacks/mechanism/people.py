"""Whose records a mechanism is audited with: a pool of candidates, who are in or out by a coin; others, of whom none is
a candidate; and records to test models on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from fedsecure.errors import AuditError, DataError
from fedsecure.randomness import numpy_generator
from fedsecure_attacks.loading import load_labelled
from fedsecure_attacks.records import Labelled

_SPLITS: tuple[Literal["train"], Literal["test"]] = ("train", "test")

__all__ = ["People", "from_files", "named"]


@dataclass(frozen=True, eq=False)
class People:
    """``pool``; ``population``, from whom attackers learn; ``test``. ``nodes``: the first half of the population are
    the other nodes' records in a federated run, and the attackers learn from the second.

    Raises ``AuditError`` when shapes differ, or when one of the population or the test records is in the pool."""

    pool: Labelled
    population: Labelled
    test: Labelled | None = None

    def __post_init__(self) -> None:
        known = set(self.pool.fingerprints())
        for part in (self.population, *([] if self.test is None else [self.test])):
            if part.x.shape[1:] != self.pool.x.shape[1:]:
                raise AuditError(
                    f"{part.name}: records of shape {list(part.x.shape[1:])} where {self.pool.name} has "
                    f"{list(self.pool.x.shape[1:])}"
                )
            if shared := sum(key in known for key in part.fingerprints()):
                raise AuditError(
                    f"{part.name}: {shared} of its records are candidates of {self.pool.name}, too",
                    hint="the population is learnt from people who are no candidates",
                )

    @cached_property
    def others(self) -> Labelled:
        """The other nodes' records in a federated run: every other record of each class of the population."""
        return self._half(0)

    @cached_property
    def strangers(self) -> Labelled:
        """The rest of the population, where a federated run has taken its half."""
        return self._half(1)

    def _half(self, start: int) -> Labelled:
        y = self.population.y
        chosen = np.sort(np.concatenate([np.flatnonzero(y == c)[start::2] for c in np.unique(y)]))
        return self.population.take(chosen)

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 (hex) of each part."""
        parts = {"pool": self.pool, "population": self.population}
        if self.test is not None:
            parts["test"] = self.test
        return {name: part.digest() for name, part in parts.items()}


def from_files(pool: Path, population: Path, test: Path | None) -> People:
    """From ``.npz`` files as ``load_labelled`` reads them. Raises ``DataError`` and ``AuditError``."""
    held = None if test is None else load_labelled(test, "test")
    return People(load_labelled(pool, "pool"), load_labelled(population, "population"), held)


def named(data: str, seed: int, sizes: tuple[int, int, int], folder: Path) -> People:
    """``digits`` (scikit-learn's) or ``fashion-mnist`` (its IDX files in ``folder``), dealt into parts of ``sizes``
    (pool, population, test) by ``seed``. Raises ``DataError`` when there are too few records."""
    x, y = _digits() if data == "digits" else _fashion(folder)
    first: dict[bytes, int] = {}  # no record twice
    for i, row in enumerate(x):
        first.setdefault(hashlib.sha256(row.tobytes()).digest(), i)
    order = numpy_generator(seed, "people", data).permutation(np.array(list(first.values())))
    if sum(sizes) > len(order):
        raise DataError(
            f"{data}: {sum(sizes)} records are asked for, and {len(order)} are there",
            hint="a smaller pool, population or test set",
        )
    pool, population, test = np.split(order[: sum(sizes)], np.cumsum(sizes)[:-1])
    parts = [
        Labelled(name, x[index], y[index])
        for name, index in (("pool", pool), ("population", population), ("test", test))
    ]
    return People(parts[0], parts[1], parts[2] if len(test) else None)


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    held = load_digits()
    return (held.images / 16).astype(np.float32)[:, None], held.target.astype(np.int64)


def _fashion(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    from fedsecure.data.settings import TorchvisionSource
    from fedsecure.data.torchvision_sets import CLASS_NAMES, SHAPES, load_torchvision
    from fedsecure.plan.task import ImageTask

    name: Literal["FashionMNIST"] = "FashionMNIST"
    task = ImageTask(kind="image", classes=CLASS_NAMES[name], shape=SHAPES[name], mean=(0.0,), std=(1.0,))
    parts = [
        load_torchvision(TorchvisionSource(kind="torchvision", name=name, path=folder, split=split), task)
        for split in _SPLITS
    ]
    return np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts])
