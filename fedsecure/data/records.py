"""What every source does last: pixels to [0, 1], ignored records dropped, arrays to a ``Dataset``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsecure.data.classes import IGNORED
from fedsecure.data.dataset import Dataset
from fedsecure.data.files import check_memory
from fedsecure.errors import DataError
from fedsecure.tensors import Array

if TYPE_CHECKING:
    from fedsecure.plan.task import Task

__all__ = ["from_bytes", "labelled", "require_shape"]


def from_bytes(pixels: Array) -> Array:
    """uint8 pixels as float32 in [0, 1]: divided by 255. Same shape."""
    scaled = pixels.astype(np.float32)
    scaled /= np.float32(255)  # in place: a data set may fill half the memory
    return scaled


def require_shape(where: str, shape: tuple[int, ...], task: Task) -> None:
    """Raises ``DataError`` when records of ``shape`` are not what the plan's task asks for."""
    if shape != task.feature_shape:
        raise DataError(
            f"{where}: records of shape {list(shape)} where the plan asks for {list(task.feature_shape)}",
            hint="the plan's shape is (channels, height, width) for images and the number of features for a table",
        )


def labelled(where: str, x: Array, index: Array, task: Task, rows: Array | None = None) -> Dataset:
    """A ``Dataset`` of the records whose ``index`` is a class. ``x``: uint8 pixels or float32, (n, *shape);
    ``index``: (n,) ints, each an index of a class or ``IGNORED``; ``rows`` (n,): which records of the source they are,
    if not all of it from the first. Raises ``DataError`` when no record is left."""
    keep = index != IGNORED  # (n,)
    if not keep.any():
        raise DataError(f"{where}: holds no records", hint="check the path, and what the ignore list leaves out")
    check_memory(where, int(keep.sum()), task.feature_shape)
    kept = x if keep.all() else x[keep]  # (n', *shape)
    scaled = from_bytes(kept) if kept.dtype == np.uint8 else kept.astype(np.float32, copy=False)
    return Dataset(
        np.ascontiguousarray(scaled.reshape(len(kept), *task.feature_shape)),
        np.ascontiguousarray(index[keep].astype(np.int64)),
        task.classes,
        (np.arange(len(keep)) if rows is None else rows)[keep].astype(np.int64),
    )
