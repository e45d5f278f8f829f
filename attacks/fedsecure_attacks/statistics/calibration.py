"""Scores of one target against those that the same records had where they were certainly out (Carlini et al. 2022)."""

from __future__ import annotations

import numpy as np

from fedsecure_attacks.statistics.scores import Floats

__all__ = ["against_others"]


def against_others(values: Floats, out: np.ndarray, target: int, *, pooled: bool = False) -> Floats:
    """``values[target]`` (n,) of ``values`` (R, n), standardised by the shadows that a record was ``out`` of (R, n),
    the target not among them. ``pooled``: one variance for all, which with fewer than 64 references is the steadier
    one. Records that were in all others get the mean of all."""
    count = out.sum(axis=0)  # (n,)
    base = np.where(out, values, 0.0)
    mean = np.where(count > 0, base.sum(axis=0) / np.maximum(count, 1), values.mean())
    squares = np.where(out, (values - mean) ** 2, 0.0)
    every = float(squares.sum() / max(1, int(count.sum()) - values.shape[1]))
    own = squares.sum(axis=0) / np.maximum(count - 1, 1)
    variance = (
        np.full(len(mean), every) if pooled else np.where(count > 2, (own * count + every * 2) / (count + 2), every)
    )
    return np.asarray((values[target] - mean) / np.sqrt(np.maximum(variance, 1e-12)))
