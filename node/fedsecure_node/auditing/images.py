"""Condensed data out of the bytes that would leave, as records are: standardisation undone, nothing cut."""

from __future__ import annotations

import numpy as np

from fedsecure.data.dataset import Dataset
from fedsecure.plan import Plan
from fedsecure.plan.task import ImageTask
from fedsecure.schema import Contribution, Schema
from fedsecure.tensors import Array

__all__ = ["condensed"]


def condensed(plan: Plan, schema: Schema, contribution: Contribution) -> Dataset | None:
    """The condensed records of a contribution, ``None`` for one that has no such tensors; none at all is legal, too."""
    data, labels = schema.of_role("released", "condensed"), schema.of_role("released", "labels")
    if data is None or labels is None:
        return None
    x = contribution.released[data.name]
    if isinstance(plan.task, ImageTask):
        x = _pixels(plan.task, x)
    return Dataset(np.ascontiguousarray(x, np.float32), contribution.released[labels.name], plan.task.classes)


def _pixels(task: ImageTask, x: Array) -> Array:
    """Images (n, C, H, W) in the units of records, from standardised ones; in float64, so that rounding is once."""
    column = (1, -1, 1, 1)
    std, mean = (np.asarray(values, np.float64).reshape(column) for values in (task.std, task.mean))
    return np.asarray((x.astype(np.float64) * std + mean).astype(np.float32))
