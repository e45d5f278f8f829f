"""Records of an audit from ``.npz`` files, however large they claim to be, and whatever they hold."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsecure.data.npz import read_arrays
from fedsecure.errors import DataError
from fedsecure.files import shown
from fedsecure_attacks.records import MOST_CLASSES, Labelled

__all__ = ["load_labelled"]

#: The most bytes of one array: 1 GiB. Some copies of it are computed with.
MOST_BYTES = 1 << 30
#: The most values of one record: those of a colour image of 256 by 256, and some more.
MOST_FEATURES = 1 << 18
#: Whole numbers below it are told apart as floats.
EXACT = 2.0**53
#: Records of a file, as a share, that may become equal when float64 is rounded to float32.
MERGED = 0.01


def load_labelled(path: Path, name: str) -> Labelled:
    """Arrays ``x`` and ``y``: images (n, channels, H, W) or (n, H, W) in [0, 1] (uint8 is divided by 255), or rows
    (n, features) of floats or uint8, as they are; labels (n,), whole numbers. Raises ``DataError`` naming the file and
    the array, ``AuditError`` for values that are not finite."""
    arrays = read_arrays(path, ("x", "y"), most_bytes=MOST_BYTES)
    x, y = arrays["x"], arrays["y"]
    where = shown(path)
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / np.float32(1 if x.ndim == 2 else 255)
    if x.dtype.kind != "f" or x.ndim not in {2, 3, 4}:
        raise DataError(
            f"{where}: array 'x' is {x.dtype} {list(x.shape)}",
            hint="store images (n, channels, H, W) or rows (n, features) as floats, or images as uint8",
        )
    if y.dtype.kind == "f" and (np.abs(y) < EXACT).all() and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    if y.dtype.kind not in "iu" or y.shape != (len(x),):
        raise DataError(
            f"{where}: array 'y' is {y.dtype} {list(y.shape)} where {len(x)} records need whole numbers [{len(x)}]",
            hint="one class number a record",
        )
    if x.dtype.itemsize > 8 or (features := math.prod(x.shape[1:])) > MOST_FEATURES:
        raise DataError(
            f"{where}: array 'x' is {x.dtype} {list(x.shape)} (allowed: float64, {MOST_FEATURES} values a record)",
            hint="make images smaller: attacks compare whole records",
        )
    if not features:
        raise DataError(f"{where}: array 'x' is {list(x.shape)}: its records hold no value")
    if len(y) and (int(y.min()) < 0 or int(y.max()) >= MOST_CLASSES):
        raise DataError(
            f"{where}: array 'y' has labels from {y.min()} to {y.max()} (allowed: 0 to {MOST_CLASSES - 1})",
            hint="number the classes from 0",
        )
    values = _as_float32(x, where)
    if values.ndim == 3:
        values = values[:, None]
    found = Labelled(name, np.ascontiguousarray(values), y.astype(np.int64))
    if found.x.ndim == 4 and len(found) and (found.x.min() < 0 or found.x.max() > 1):
        raise DataError(
            f"{where}: array 'x' has pixels from {found.x.min():g} to {found.x.max():g} (allowed: 0 to 1)",
            hint="undo the standardisation of what was released: x * std + mean",
        )
    return found


def _as_float32(x: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
    """``x`` (n, *shape) as it is compared. Raises ``DataError`` where that makes records equal that are not."""
    with np.errstate(over="ignore"):
        values = x.astype(np.float32)
    if x.dtype.itemsize <= values.dtype.itemsize:
        return values
    given, kept = _different(x), _different(values)
    if given - kept > MERGED * len(x):
        raise DataError(
            f"{where}: array 'x' has {given} different records, and {kept} once values are float32",
            hint="subtract from each column what all records share, and divide by its spread, in all files alike",
        )
    return values


def _different(x: npt.NDArray[Any]) -> int:
    return len({hashlib.sha256(np.ascontiguousarray(row).data).digest() for row in x})
