"""The IDX format of the MNIST family: four bytes of magic, big-endian lengths, then bytes; plain or gzipped.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", file formats.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Protocol

import numpy as np

from fedsecure.data.files import check_memory, readable, require_file, shown
from fedsecure.errors import DataError
from fedsecure.tensors import Array

__all__ = ["read_idx"]

#: Third byte of the magic: the element type. The MNIST family has unsigned bytes.
_UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> Array:
    """A uint8 array of ``dimensions`` axes. Lengths are checked before anything is allocated, and the file must end
    where they say.

    Raises ``DataError`` naming the file.
    """
    require_file(path)
    try:
        with readable(path), path.open("rb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw, mode="rb") as stream:
                    return _parse(stream, dimensions, shown(path))
            return _parse(raw, dimensions, shown(path))
    except (EOFError, zlib.error):
        raise DataError(f"{shown(path)}: cut short or damaged", hint="copy the file again") from None


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _parse(stream: _Stream, dimensions: int, where: str) -> Array:
    header = _exactly(stream, 4 + 4 * dimensions, where)
    if header[:4] != bytes((0, 0, _UNSIGNED_BYTE, dimensions)):
        raise DataError(
            f"{where}: not an IDX file of bytes with {dimensions} axes", hint="are images and labels swapped?"
        )
    shape = tuple(int(n) for n in np.frombuffer(header[4:], dtype=">u4"))
    check_memory(where, shape[0], shape[1:])
    body = _exactly(stream, math.prod(shape), where)
    if stream.read(1):
        raise DataError(f"{where}: goes on after the {shape[0]} records that it declares", hint="copy the file again")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _exactly(stream: _Stream, length: int, where: str) -> bytes:
    data = stream.read(length)
    if len(data) != length:
        raise DataError(f"{where}: ends after {len(data)} of {length} bytes", hint="copy the file again")
    return data
