"""Tensors: an immutable map from dotted names to numpy arrays.

The only currency on the wire, on disk and under masks. Serialised as safetensors; nothing here can execute
what it reads.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsecure.errors import DataError

__all__ = ["DTYPES", "Array", "Header", "Tensors", "read_header"]

Array = npt.NDArray[Any]
#: name -> (dtype name, shape)
Header = dict[str, tuple[str, tuple[int, ...]]]

#: dtype name -> safetensors code. Nothing else travels.
DTYPES: dict[str, str] = {
    "float32": "F32",
    "float64": "F64",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
}
_NAME_OF_CODE = {code: name for name, code in DTYPES.items()}
#: A safetensors header longer than this is refused before it is parsed (bytes).
MAX_HEADER_BYTES = 1 << 20
#: Names longer than this, or with other characters than letters, digits, ``._-``, are refused.
MAX_NAME_LENGTH = 200


def _check_name(name: str) -> None:
    if (
        not name
        or len(name) > MAX_NAME_LENGTH
        or not all(c.isalnum() or c in "._-" for c in name)
        or not name.isascii()
    ):
        raise DataError(f"tensor name {name[:40]!r} is not made of letters, digits and ._- (at most {MAX_NAME_LENGTH})")


class Tensors(Mapping[str, Array]):
    """An immutable mapping of names to read-only, C-contiguous arrays, iterated in name order.

    Raises ``DataError`` when a name is malformed or a dtype is not one of ``DTYPES``.
    """

    __slots__ = ("_arrays",)

    def __init__(self, arrays: Mapping[str, Array] | None = None) -> None:
        kept: dict[str, Array] = {}
        for name in sorted(arrays or {}):
            _check_name(name)
            array = np.ascontiguousarray((arrays or {})[name])
            if array.shape != np.shape((arrays or {})[name]):  # ascontiguousarray lifts 0-d to 1-d
                array = array.reshape(np.shape((arrays or {})[name]))
            if array.dtype.name not in DTYPES:
                raise DataError(
                    f"tensor {name}: dtype {array.dtype} cannot travel",
                    hint=f"use one of {', '.join(DTYPES)}",
                )
            if array.flags.writeable:
                array = array.copy()
                array.flags.writeable = False
            kept[name] = array
        self._arrays = kept

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}: {a.dtype.name}{list(a.shape)}" for n, a in self._arrays.items())
        return f"Tensors({inside})"

    def __eq__(self, other: object) -> bool:
        """Bit-for-bit equality of names, dtypes, shapes and bytes (two NaN of the same bits are equal)."""
        if not isinstance(other, Tensors):
            return NotImplemented
        return self.header() == other.header() and all(self[n].tobytes() == other[n].tobytes() for n in self)

    __hash__ = None  # type: ignore[assignment]

    def header(self) -> Header:
        """What a schema is checked against: name -> (dtype name, shape)."""
        return {n: (a.dtype.name, a.shape) for n, a in self._arrays.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, headers not counted."""
        return sum(a.nbytes for a in self._arrays.values())

    def under(self, prefix: str) -> Tensors:
        """The tensors named ``prefix.…``, with the prefix and its dot removed."""
        start = prefix + "."
        return Tensors({n[len(start) :]: a for n, a in self._arrays.items() if n.startswith(start)})

    def prefixed(self, prefix: str) -> Tensors:
        """The same tensors, each renamed to ``prefix.name``."""
        return Tensors({f"{prefix}.{n}": a for n, a in self._arrays.items()})

    def with_(self, other: Mapping[str, Array]) -> Tensors:
        """These tensors, with those of ``other`` added or replaced."""
        return Tensors({**self._arrays, **other})

    def digest(self) -> str:
        """SHA-256 (hex) over names, dtypes, shapes and bytes in name order: equal digests, equal tensors."""
        sha = hashlib.sha256(b"fedsecure/tensors/v1")
        for name, array in self._arrays.items():
            head = json.dumps([name, array.dtype.name, list(array.shape)]).encode()
            sha.update(len(head).to_bytes(4, "big") + head)
            sha.update(np.ascontiguousarray(array).data if array.size else b"")
        return sha.hexdigest()

    def to_bytes(self) -> bytes:
        """The safetensors form: deterministic for equal tensors."""
        from safetensors.numpy import save

        return bytes(save(dict(self._arrays)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Tensors:
        """Parse the safetensors form. Raises ``DataError`` when it is damaged or holds a dtype we do not send."""
        read_header(data)
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            return cls(load(data))
        except (SafetensorError, ValueError, KeyError, OverflowError) as error:
            raise DataError(f"damaged tensor file: {error}", hint="ask for it again, or restore it") from None


def read_header(data: bytes) -> Header:
    """Names, dtypes and shapes of a safetensors blob, read without allocating a single array.

    Raises ``DataError`` for anything malformed: header too long, not JSON, an unknown dtype, offsets that do
    not match the shapes, or a length that does not match the blob.
    """
    if len(data) < 8:
        raise DataError("tensor file is cut short: no header")
    size = int.from_bytes(data[:8], "little")
    if size > MAX_HEADER_BYTES or 8 + size > len(data):
        raise DataError(
            f"tensor file declares a header of {size} bytes: damaged, or over the limit of {MAX_HEADER_BYTES}"
        )
    try:
        raw = json.loads(data[8 : 8 + size])
        entries = {n: e for n, e in raw.items() if n != "__metadata__"}
        parsed = {n: (e["dtype"], tuple(e["shape"]), tuple(e["data_offsets"])) for n, e in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataError("tensor file has a malformed header") from None
    header: Header = {}
    total = 0
    for name, (code, shape, offsets) in parsed.items():
        _check_name(name)
        if code not in _NAME_OF_CODE:
            raise DataError(f"tensor {name}: dtype {str(code)[:20]!r} is not one of {', '.join(DTYPES)}")
        if not all(type(d) is int and d >= 0 for d in (*shape, *offsets)) or len(offsets) != 2:
            raise DataError(f"tensor {name}: malformed shape or offsets")
        nbytes = math.prod(shape) * np.dtype(_NAME_OF_CODE[code]).itemsize
        if offsets[1] - offsets[0] != nbytes:
            raise DataError(f"tensor {name}: {offsets[1] - offsets[0]} bytes do not hold shape {list(shape)} of {code}")
        header[name] = (_NAME_OF_CODE[code], shape)
        total += nbytes
    if total != len(data) - 8 - size:
        raise DataError(f"tensor file holds {len(data) - 8 - size} bytes of data where its header names {total}")
    return header
