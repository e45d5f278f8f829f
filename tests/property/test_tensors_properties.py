"""Any tensors survive the wire bit for bit, and damaged bytes are an error, or what their own header says."""

from __future__ import annotations

import contextlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.errors import DataError
from fedsecure.tensors import DTYPES, Tensors, read_header

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=12)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(sorted(DTYPES))))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype == np.bool_:
        raw = bytes(b & 1 for b in raw)
    return np.frombuffer(raw, dtype=dtype).reshape(shape)


TENSORS = st.dictionaries(NAMES, arrays(), max_size=4).map(Tensors)


@given(TENSORS)
def test_round_trip(tensors: Tensors) -> None:
    data = tensors.to_bytes()
    assert read_header(data) == tensors.header()
    again = Tensors.from_bytes(data)
    assert again == tensors
    assert again.digest() == tensors.digest()
    assert again.to_bytes() == data


@given(TENSORS, TENSORS)
def test_equal_digests_mean_equal_tensors(one: Tensors, two: Tensors) -> None:
    assert (one.digest() == two.digest()) == (one == two)


@given(TENSORS, st.data())
@settings(max_examples=200)
def test_damaged_bytes_raise_or_parse_to_what_their_header_says(tensors: Tensors, data: st.DataObject) -> None:
    raw = bytearray(tensors.to_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        parsed = Tensors.from_bytes(bytes(raw))
    except DataError:
        return
    assert parsed.header() == read_header(bytes(raw))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash_the_parser(raw: bytes) -> None:
    with contextlib.suppress(DataError):
        Tensors.from_bytes(raw)
