"""A node's records in memory: an array, labels, and the class names that the plan fixes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedsecure.errors import DataError

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled records.

    ``x``: float32 (n, *shape), values as the plan's task ranges them, before standardisation. ``y``: int64 (n,),
    an index into ``classes``, the plan's class names in the plan's order. ``rows``: int64 (n,), which record of its
    source each is, in the order of ``fedsecure.data.fingerprint``; ``None`` where that is not known. Raises
    ``DataError`` when the arrays do not fit each other.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    rows: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.x.dtype != np.float32 or self.y.dtype != np.int64:
            raise DataError(f"a data set holds float32 records and int64 labels, not {self.x.dtype} and {self.y.dtype}")
        if self.y.ndim != 1 or len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} records do not go with labels of shape {list(self.y.shape)}")
        if len(self.y) and (self.y.min() < 0 or self.y.max() >= len(self.classes)):
            raise DataError(f"labels {self.y.min()}..{self.y.max()} do not index {len(self.classes)} classes")

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Dataset({len(self)} records of {list(self.x.shape[1:])}, {len(self.classes)} classes)"

    def counts(self) -> npt.NDArray[np.int64]:
        """Records per class, int64 (num_classes,)."""
        return np.bincount(self.y, minlength=len(self.classes)).astype(np.int64)

    def subset(self, index: npt.NDArray[np.int64]) -> Dataset:
        """The records at ``index``, in that order."""
        rows = None if self.rows is None else self.rows[index]
        return Dataset(self.x[index], self.y[index], self.classes, rows)

    def digest(self) -> str:
        """SHA-256 (hex) of the records and labels in their order, and the names of the classes: equal data, bit for
        bit, whose use gives equal results."""
        head = json.dumps([list(self.x.shape), list(self.classes)]).encode()
        found = hashlib.sha256(len(head).to_bytes(8, "little") + head)
        found.update(np.ascontiguousarray(self.x).data)
        found.update(np.ascontiguousarray(self.y).data)
        return found.hexdigest()

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the set of records as a plan encodes them, whatever their order or path. A privacy
        ledger knows them by ``fedsecure.data.fingerprint``, whatever the plan."""
        rows = sorted(
            hashlib.sha256(self.x[i].tobytes() + int(self.y[i]).to_bytes(8, "little")).digest()
            for i in range(len(self))
        )
        head = json.dumps([list(self.x.shape[1:]), list(self.classes)]).encode()
        return hashlib.sha256(b"fedsecure/dataset/v1" + head + b"".join(rows)).hexdigest()
