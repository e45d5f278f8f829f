"""People who do not exist, and sets made from them: what a self-test plants."""

from __future__ import annotations

import numpy as np

from fedsecure_attacks.records import Images, Labelled

__all__ = ["SIDE", "averages", "noise", "pictures", "rows"]

#: Pixels a side of a picture.
SIDE = 8


def pictures(name: str, n: int, rng: np.random.Generator) -> Labelled:
    """``n`` grey pictures (1, SIDE, SIDE) in [0, 1], of two classes in turn: a blob at a place of its own, on noise."""
    y, grid = np.arange(n) % 2, np.linspace(-1, 1, SIDE)
    centre = rng.uniform(-0.6, 0.6, (n, 2))
    far = (grid[None, :, None] - centre[:, :1, None]) ** 2 + (grid[None, None] - centre[:, 1:, None]) ** 2
    x = 0.5 * np.exp(-2 * far) + 0.4 * rng.random((n, SIDE, SIDE)) + 0.1 * y[:, None, None]  # in [0, 1]
    return Labelled(name, x[:, None].astype(np.float32), y.astype(np.int64))


def rows(name: str, n: int, rng: np.random.Generator, *, features: int = 12, shift: float = 0.0) -> Labelled:
    """``n`` rows of Gaussian values of variance one, of two classes in turn with means ``shift`` and 1 + ``shift``."""
    y = np.arange(n) % 2
    x = rng.standard_normal((n, features)) + y[:, None] + shift
    return Labelled(name, x.astype(np.float32), y.astype(np.int64))


def noise(n: int, rng: np.random.Generator) -> Labelled:
    """A released set of ``n`` pictures that are made from nobody."""
    x: Images = rng.random((n, 1, SIDE, SIDE)).astype(np.float32)
    return Labelled("released", x, np.arange(n, dtype=np.int64) % 2)


def averages(of: Labelled, per_class: int, group: int = 0) -> Labelled:
    """A released set: ``per_class`` averages for each class of disjoint groups of ``group`` of its records, or of all
    that there are."""
    x, y = [], []
    for c in np.unique(of.y).tolist():
        own = of.x[of.y == c]
        own = own[: per_class * group] if group else own
        x += [part.mean(axis=0) for part in np.array_split(own, per_class)]
        y += [c] * per_class
    return Labelled("released", np.stack(x).astype(np.float32), np.array(y, np.int64))
