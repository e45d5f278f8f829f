"""A node's records by what they are: one digest a raw record, whatever the path, the order, and any plan's task.

By these a privacy ledger knows its data sets again. A digest follows from the record alone, never from its label: to
move a picture into another class, or to correct a label in an array, makes no new record. It is taken before a plan
resizes, standardises or encodes anything, and of all records of a source, also of those that it ignores:

- a picture of a folder: the bytes of its file (decoded pixels would change with the decoder's version);
- an array's row, an image of a named set: its values as float32, as every task sees them: uint8 over 255;
- a row of a table: its cells by the names of their columns, whatever the order; empty cells count for nothing. The
  label's cell is among them, since who exports a table may name any column so.

Pictures saved anew, or a table with a column more, are other records to it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedsecure.data import load_dataset
from fedsecure.data.csv_rows import open_table, rows
from fedsecure.data.files import MAX_DATASET_BYTES, readable, require_file, shown
from fedsecure.data.folder import record_files
from fedsecure.data.npz import read_arrays
from fedsecure.data.records import from_bytes
from fedsecure.data.settings import AnySource, CsvSource, DigitsSource, FolderSource, NpzSource, TorchvisionSource
from fedsecure.errors import DataError
from fedsecure.plan.task import ImageTask
from fedsecure.tensors import Array

__all__ = ["record_digests"]

_FILE, _VALUES, _CELLS = (f"fedsecure/record/v1/{kind}\0".encode() for kind in ("file", "values", "cells"))
#: Read, or turned to float32, at a time (bytes).
_BLOCK = 1 << 20


def record_digests(source: AnySource) -> tuple[bytes, ...]:
    """SHA-256 (32 bytes) of each record, in the source's order. Files and tables are read piece by piece. Raises
    ``DataError`` naming what cannot be read."""
    if isinstance(source, FolderSource):
        found = tuple(_of_file(path) for path in record_files(source.path))
    elif isinstance(source, CsvSource):
        found = tuple(_of_table(source))
    else:
        found = tuple(_of_values(_native(source)))
    if not found:
        raise DataError(f"the source of kind '{source.kind}' holds no records", hint="check the path")
    return found


def _of_file(path: Path) -> bytes:
    require_file(path)
    digest = hashlib.sha256(_FILE)
    with readable(path), path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.digest()


def _of_table(source: CsvSource) -> Iterator[bytes]:
    table = open_table(source.path, source.encoding, source.delimiter)
    for line, cells in rows(table):
        if len(cells) != len(table.header):
            raise DataError(
                f"{table.where}: line {line}: {len(cells)} cells where the header line has {len(table.header)}",
                hint="correct the file",
            )
        named = sorted((name, cell) for name, cell in zip(table.header, cells, strict=True) if cell)
        yield hashlib.sha256(_CELLS + json.dumps(named, ensure_ascii=True).encode()).digest()


def _native(source: NpzSource | DigitsSource | TorchvisionSource) -> Array:
    """All records at their own size, (n, …): uint8, or floats."""
    if isinstance(source, NpzSource):
        x = read_arrays(source.path, (source.x,), most_bytes=MAX_DATASET_BYTES)[source.x]
        if x.ndim < 2 or x.dtype.name not in ("uint8", "float16", "float32", "float64"):
            raise DataError(
                f"{shown(source.path)}: array '{shown(source.x)}' of {x.dtype.name} and shape {list(x.shape)} holds no "
                "records",
                hint="store images as uint8, or as floats in [0, 1]; rows as floats",
            )
        return x
    from fedsecure.data.native import native_shape
    from fedsecure.data.torchvision_sets import CLASS_NAMES

    names = CLASS_NAMES[source.name] if isinstance(source, TorchvisionSource) else tuple("0123456789")
    task = ImageTask(kind="image", classes=names, shape=(1, 8, 8))
    task = task.model_copy(update={"shape": native_shape(source, task)})
    return load_dataset(source.model_copy(update={"classes": {}, "ignore": ()}), task).x


def _of_values(x: Array) -> Iterator[bytes]:
    """``x`` (n, …) row by row, as little-endian float32 without negative zeros."""
    step = max(1, _BLOCK // max(1, 4 * math.prod(x.shape[1:])))
    for start in range(0, len(x), step):
        block = x[start : start + step]
        with np.errstate(over="ignore"):
            values = from_bytes(block) if block.dtype == np.uint8 else block.astype(np.float32)
        values += np.float32(0)  # -0 and 0 are one number
        for row in np.ascontiguousarray(values, dtype="<f4"):
            yield hashlib.sha256(_VALUES + row.tobytes()).digest()
