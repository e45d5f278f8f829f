"""Tensors: names, dtypes, immutability, the digest, and damaged files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.errors import DataError
from fedsecure.tensors import MAX_HEADER_BYTES, Tensors, read_header


def sample() -> Tensors:
    return Tensors({"b.x": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array(7, dtype=np.int64)})


def test_iterates_in_name_order_and_is_read_only() -> None:
    tensors = sample()
    assert list(tensors) == ["a", "b.x"]
    with pytest.raises(ValueError, match="read-only"):
        tensors["b.x"][0, 0] = 1


def test_does_not_alias_a_writable_input() -> None:
    source = np.zeros(3, dtype=np.float32)
    tensors = Tensors({"x": source})
    source[0] = 9
    assert tensors["x"][0] == 0


def test_keeps_scalars_zero_dimensional() -> None:
    assert sample()["a"].shape == ()


def test_round_trip_is_bit_exact() -> None:
    tensors = sample().with_({"n": np.array([np.nan, np.inf], dtype=np.float64), "e": np.zeros((0, 3), np.uint8)})
    assert Tensors.from_bytes(tensors.to_bytes()) == tensors
    assert tensors.to_bytes() == Tensors(dict(reversed(list(tensors.items())))).to_bytes()


def test_digest_separates_name_dtype_shape_and_bytes() -> None:
    base = Tensors({"x": np.zeros(4, np.float32)})
    others = [
        Tensors({"y": np.zeros(4, np.float32)}),
        Tensors({"x": np.zeros(4, np.int32)}),
        Tensors({"x": np.zeros((2, 2), np.float32)}),
        Tensors({"x": np.ones(4, np.float32)}),
        Tensors({"x": np.zeros(2, np.float32), "z": np.zeros(2, np.float32)}),
    ]
    assert len({t.digest() for t in [base, *others]}) == 6


def test_prefixes_go_on_and_come_off() -> None:
    assert sample().prefixed("model").under("model") == sample()
    assert list(sample().under("b")) == ["x"]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", "x" * 201, "é", "a\x00"])
def test_refuses_names_that_could_be_paths_or_worse(name: str) -> None:
    with pytest.raises(DataError, match="tensor name"):
        Tensors({name: np.zeros(1, np.float32)})


@pytest.mark.parametrize(
    "array", [np.array(["x"]), np.zeros(2, np.complex64), np.array([object()]), np.zeros(1, np.float16)]
)
def test_refuses_dtypes_that_do_not_travel(array: np.ndarray) -> None:
    with pytest.raises(DataError, match="tensor x: dtype"):
        Tensors({"x": array})


def blob(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        (MAX_HEADER_BYTES + 1).to_bytes(8, "little") + b"{}",
        (2**63).to_bytes(8, "little"),
        blob(b"not json"),
        blob(b"[" * 50_000),
        blob([1]),
        blob({"x": 3}),
        blob({"x": {"dtype": "F32"}}),
        blob({"x": {"dtype": "OBJ", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        blob({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"),
        blob({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}),
        blob({"x": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}, b"1234"),
        blob({"x": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, b"1234"),
        blob({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12345678"),
        blob({"../x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    ],
)
def test_damaged_files_are_data_errors(data: bytes) -> None:
    with pytest.raises(DataError):
        read_header(data)
    with pytest.raises(DataError):
        Tensors.from_bytes(data)


def test_overlapping_offsets_are_refused() -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    with pytest.raises(DataError):
        Tensors.from_bytes(blob({"x": entry, "y": entry}, b"12345678"))
