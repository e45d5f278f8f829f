"""Records in a numpy ``.npz`` archive: every header is read and checked before a single record is.

An archive is a zip of ``.npy`` files; what a file declares about itself (sizes, types, shapes) is compared with what
the plan asks for and with each other first, so that neither a pickle nor a zip bomb is ever unpacked.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np

from fedsecure.data.classes import ClassNames
from fedsecure.data.files import check_memory, listed, readable, require_file, shown
from fedsecure.data.records import from_bytes, labelled, require_shape
from fedsecure.errors import DataError
from fedsecure.tensors import Array

if TYPE_CHECKING:
    from pathlib import Path

    from fedsecure.data.dataset import Dataset
    from fedsecure.data.settings import NpzSource
    from fedsecure.plan.task import Task

__all__ = ["declared_images", "load_npz", "load_records", "read_arrays"]

#: What a damaged archive makes the standard library raise.
_BROKEN = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
    zlib.error,
)
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: A label is a class name: longer ones (bytes each) are refused before they are read.
MAX_LABEL_BYTES = 4096
#: Largest whole number that a float label holds exactly.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class _Declared:
    """What the header of one array says."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]


def load_npz(source: NpzSource, task: Task) -> Dataset:
    """Images (n, channels, H, W), or (n, H, W) when the plan has one channel, or encoded rows (n, features); labels
    (n,).

    uint8 images are divided by 255; float16, float32 and float64 images must lie in [0, 1]. Labels are strings, whole
    numbers or true/false, and are compared with class names as text. Raises ``DataError`` naming the file and the
    array.
    """
    where = shown(source.path)
    require_file(source.path)
    try:
        with readable(source.path), zipfile.ZipFile(source.path) as archive:
            x_head, y_head = (_declared(archive, name, where) for name in (source.x, source.y))
            _check_records(x_head, task, where)
            _check_labels(y_head, x_head.shape[0], where)
            y = _read(archive, y_head, where)  # (n,)
            names = ClassNames(source.classes, source.ignore, task.classes, where)
            index = _class_index(y, names, y_head.name)  # (n,)
            x = _read(archive, x_head, where)  # (n, *shape)
    except _BROKEN:
        raise _not_whole(where) from None
    return labelled(where, _checked_values(x, x_head.name, task, where), index, task)


def load_records(path: Path, task: Task, name: str = "x") -> Array:
    """Records without labels, float32 (n, *shape), n >= 1: array ``name`` of an archive. Raises as ``load_npz``."""
    where = shown(path)
    require_file(path)
    try:
        with readable(path), zipfile.ZipFile(path) as archive:
            head = _declared(archive, name, where, f"store the records as array {name}")
            _check_records(head, task, where)
            x = _read(archive, head, where)  # (n, *shape)
    except _BROKEN:
        raise _not_whole(where) from None
    x = _checked_values(x, name, task, where)
    return (from_bytes(x) if x.dtype == np.uint8 else x).reshape(len(x), *task.feature_shape)


def read_arrays(path: Path, names: Sequence[str], *, most_bytes: int) -> dict[str, Array]:
    """Plain arrays of an archive as they are, whatever they hold. Raises ``DataError`` naming the file and the array:
    one that is missing, holds objects, is damaged, or is larger than ``most_bytes``."""
    where = shown(path)
    require_file(path)
    try:
        with readable(path), zipfile.ZipFile(path) as archive:
            heads = [_declared(archive, name, where) for name in names]
            for head in heads:
                if (size := math.prod(head.shape) * head.dtype.itemsize) > most_bytes:
                    raise DataError(f"{where}: array '{shown(head.name)}' has {size} bytes (allowed: {most_bytes})")
            return {head.name: _read(archive, head, where) for head in heads}
    except _BROKEN:
        raise _not_whole(where) from None


def declared_images(source: NpzSource) -> tuple[int, int, int] | None:
    """(channels, height, width) that the archive declares, or ``None`` where these are no images with 1 or 3 channels
    first. Raises ``DataError`` as ``load_npz``."""
    where = shown(source.path)
    require_file(source.path)
    try:
        with readable(source.path), zipfile.ZipFile(source.path) as archive:
            shape = _declared(archive, source.x, where).shape[1:]
    except _BROKEN:
        raise _not_whole(where) from None
    channels, *sides = (1, *shape) if len(shape) == 2 else shape or (0,)
    return (channels, sides[0], sides[1]) if channels in (1, 3) and len(sides) == 2 else None


def _not_whole(where: str) -> DataError:
    return DataError(f"{where}: not a whole .npz archive", hint="write it with numpy.savez, and copy it completely")


def _declared(archive: zipfile.ZipFile, name: str, where: str, hint: str = "name the arrays with x and y") -> _Declared:
    """Header of array ``name``, checked for what could hurt: pickles, odd packing, sizes that contradict each other."""
    entries = [i for i in archive.infolist() if i.filename == f"{name}.npy"]
    if len(entries) != 1:
        held = [i.filename.removesuffix(".npy") for i in archive.infolist()]
        what = (
            f"holds array '{shown(name)}' twice" if entries else f"has no array '{shown(name)}' (it has {listed(held)})"
        )
        raise DataError(f"{where}: {what}", hint=hint)
    entry = entries[0]
    if entry.flag_bits & 1 or entry.compress_type not in _PACKED:
        raise DataError(
            f"{where}: array '{shown(name)}' is encrypted or packed in an unknown way", hint="use numpy.savez"
        )
    with archive.open(entry) as stream:
        dtype, shape, start = _header(stream, f"{where}: array '{shown(name)}'")
    held_bytes = math.prod(shape) * dtype.itemsize
    if entry.file_size - start != held_bytes:
        raise DataError(
            f"{where}: array '{shown(name)}' declares {held_bytes} bytes but holds {entry.file_size - start}",
            hint="the file is damaged, or made to mislead",
        )
    return _Declared(name, dtype, shape)


def _header(stream: IO[bytes], which: str) -> tuple[np.dtype, tuple[int, ...], int]:
    """dtype, shape and length of a ``.npy`` header. numpy bounds its length (10,000 bytes) and parses it as a
    literal."""
    formats = np.lib.format
    try:
        version = formats.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise DataError(f"{which} has .npy format {version[0]}.{version[1]}", hint="plain arrays have 1.0 or 2.0")
        read = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
        shape, _, dtype = read(stream)
    except (ValueError, TypeError, SyntaxError, EOFError, zlib.error, MemoryError, RecursionError, OverflowError):
        raise DataError(f"{which} is damaged: no readable .npy header", hint="write it with numpy.savez") from None
    if dtype.hasobject:
        raise DataError(
            f"{which} holds Python objects, which are pickles and can run code: never read",
            hint="save numbers or strings: array.astype(str) for labels",
        )
    if dtype.fields or dtype.subdtype or any(length < 0 for length in shape):
        raise DataError(f"{which} is no plain array of numbers or strings", hint="save plain arrays")
    return dtype, tuple(int(length) for length in shape), stream.tell()


def _check_records(head: _Declared, task: Task, where: str) -> None:
    which = f"{where}: array '{shown(head.name)}'"
    allowed = ("float16", "float32", "float64") + (("uint8",) if task.kind == "image" else ())
    if head.dtype.name not in allowed:
        raise DataError(
            f"{which} has dtype {head.dtype.name} (allowed: {', '.join(allowed)})",
            hint="store images as uint8, or as floats in [0, 1]; other whole numbers have no known range",
        )
    if len(head.shape) < 2:
        raise DataError(f"{which} has shape {list(head.shape)}: no records", hint="the first axis counts the records")
    if not head.shape[0]:
        raise DataError(f"{which} holds no records", hint="check the path, and what wrote the file")
    shape = head.shape[1:]
    if task.kind == "image":
        if len(shape) == 2:
            shape = (1, *shape)
        channels, height, width = task.shape
        if shape == (height, width, channels) != task.shape:
            raise DataError(
                f"{which} has the channels last: {list(head.shape)}",
                hint="the plan's shape is (channels, height, width): x.transpose(0, 3, 1, 2)",
            )
    require_shape(which, shape, task)
    check_memory(which, head.shape[0], task.feature_shape)


def _check_labels(head: _Declared, records: int, where: str) -> None:
    which = f"{where}: array '{shown(head.name)}'"
    if head.shape != (records,):
        raise DataError(
            f"{which} has shape {list(head.shape)} where {records} records need [{records}]",
            hint="one label a record: a class name or a number, not one-hot rows",
        )
    if head.dtype.kind not in "biufUS" or head.dtype.itemsize > MAX_LABEL_BYTES:
        raise DataError(f"{which} has dtype {head.dtype}, not that of labels", hint="use strings or whole numbers")


def _read(archive: zipfile.ZipFile, head: _Declared, where: str) -> Array:
    """The array itself, in this machine's byte order. Its declared size was checked; the archive checks its CRC-32."""
    which = f"{where}: array '{shown(head.name)}'"
    try:
        with archive.open(f"{head.name}.npy") as stream:
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
            stream.read(1)  # reaching the end makes zipfile compare the checksum
    except MemoryError:
        raise DataError(
            f"{which} does not fit into this machine's memory", hint="take part with fewer records"
        ) from None
    except (ValueError, EOFError, zlib.error, zipfile.BadZipFile):
        raise DataError(f"{which} is damaged", hint="copy the file again") from None
    if array.dtype != head.dtype or array.shape != head.shape:
        raise DataError(f"{which} changed while it was read")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _class_index(y: Array, names: ClassNames, name: str) -> Array:
    """Label values (n,) -> class indices (n,), int64."""
    which = f"{names.where}: array '{shown(name)}'"
    if y.dtype.kind == "f":
        whole = np.isfinite(y) & (np.floor(y) == y) & (np.abs(y) < _EXACT)
        if not whole.all():
            raise DataError(
                f"{which}: record {int(np.argmin(whole))}: its label is not a whole number",
                hint="is this the array of labels? store class names or whole numbers",
            )
        y = y.astype(np.int64)
    values, inverse = np.unique(y, return_inverse=True)  # (m,), (n,)
    try:
        own = [v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in values.tolist()]
    except UnicodeDecodeError:
        raise DataError(f"{which}: labels are bytes that are not UTF-8", hint="store labels as strings") from None
    indices = np.asarray(names.indices(own, f"array '{shown(name)}' has labels"), dtype=np.int64)
    found: Array = indices[inverse.reshape(-1)]
    return found


def _checked_values(x: Array, name: str, task: Task, where: str) -> Array:
    """uint8 as it is; floats as float32 after finiteness and, for images, the range were checked."""
    if x.dtype == np.uint8:
        return x
    which = f"{where}: array '{shown(name)}'"
    rows = x.reshape(len(x), math.prod(x.shape[1:]))  # (n, features)
    if not (finite := np.isfinite(rows).all(axis=1)).all():
        raise DataError(f"{which}: record {int(np.argmin(finite))} holds values that are not finite")
    if task.kind == "image":
        inside = ((rows >= 0) & (rows <= 1)).all(axis=1)
        if not inside.all():
            raise DataError(
                f"{which}: record {int(np.argmin(inside))} has pixels outside [0, 1]",
                hint="store uint8 pixels as uint8, or divide them by 255",
            )
    with np.errstate(over="ignore"):
        found = x.astype(np.float32, copy=False)
    if not (finite := np.isfinite(found).reshape(len(x), -1).all(axis=1)).all():
        raise DataError(
            f"{which}: record {int(np.argmin(finite))} holds values too large for float32 (beyond 3.4e38)",
            hint="records are computed with as float32: are these values what they should be?",
        )
    return found
