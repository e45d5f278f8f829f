"""Records of an audit from ``.npz`` files, however large they claim to be, and whatever they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsecure.data.npz import read_arrays
from fedsecure.errors import DataError
from fedsecure.files import shown
from fedsecure_attacks.records import Labelled

__all__ = ["load_labelled"]

#: The most bytes of one array: 4 GiB.
MOST_BYTES = 4 << 30


def load_labelled(path: Path, name: str) -> Labelled:
    """Arrays ``x`` and ``y``: images (n, channels, H, W) or (n, H, W) in [0, 1] (uint8 is divided by 255), or rows
    (n, features); labels (n,), whole numbers. Raises ``DataError`` naming the file and the array, ``AuditError`` for
    values that are not finite."""
    arrays = read_arrays(path, ("x", "y"), most_bytes=MOST_BYTES)
    x, y = arrays["x"], arrays["y"]
    where = shown(path)
    if x.dtype == np.uint8:
        x = x.astype(np.float32) / np.float32(255)
    if x.dtype.kind != "f" or x.ndim not in {2, 3, 4}:
        raise DataError(
            f"{where}: array 'x' is {x.dtype} {list(x.shape)}",
            hint="store images (n, channels, H, W) or rows (n, features) as floats, or images as uint8",
        )
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.floor(y)).all():
        y = y.astype(np.int64)
    if y.dtype.kind not in "iu" or y.shape != (len(x),):
        raise DataError(
            f"{where}: array 'y' is {y.dtype} {list(y.shape)} where {len(x)} records need whole numbers [{len(x)}]",
            hint="one class number a record",
        )
    with np.errstate(over="ignore"):
        values = x.astype(np.float32)
    if values.ndim == 3:
        values = values[:, None]
    found = Labelled(name, np.ascontiguousarray(values), y.astype(np.int64))
    if found.x.ndim == 4 and len(found) and (found.x.min() < 0 or found.x.max() > 1):
        raise DataError(
            f"{where}: array 'x' has pixels from {found.x.min():g} to {found.x.max():g} (allowed: 0 to 1)",
            hint="undo the standardisation of what was released: x * std + mean",
        )
    return found
