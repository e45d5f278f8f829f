"""A chunk's bytes are written and read by hand, for speed: they must be protobuf's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.secagg.protocol.chunks import CHUNK_BYTES, _in_place, masked_chunk, parse_masked_chunk
from fedsecure.secagg.v1 import secagg_pb2 as pb


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16383, 16384, CHUNK_BYTES - 1, CHUNK_BYTES])
@pytest.mark.parametrize(("stream", "offset"), [(0, 0), (1, 0), (15, 2**34)])
def test_a_chunk_is_what_protobuf_would_write(size: int, stream: int, offset: int) -> None:
    data = (bytes(range(1, 252)) * (size // 251 + 1))[:size]
    whole = pb.MaskedChunk(transcript1=b"t" * 32, stream=stream, offset=offset, data=data).SerializeToString()
    assert masked_chunk(b"t" * 32, stream, offset, data) == whole
    assert masked_chunk(b"t" * 32, stream, offset, memoryview(data)) == whole


@pytest.mark.parametrize(("stream", "offset"), [(0, 0), (3, 2**20), (2**32 - 1, 2**64 - 1)])
def test_a_chunk_is_read_as_it_was_written_without_a_copy(stream: int, offset: int) -> None:
    chunk = parse_masked_chunk(masked_chunk(b"t" * 32, stream, offset, b"masked"))
    assert (chunk.transcript1, chunk.stream, chunk.offset, chunk.data) == (b"t" * 32, stream, offset, b"masked")
    assert isinstance(chunk.data, memoryview)


def test_a_chunk_with_its_fields_in_another_order_is_read_by_protobuf() -> None:
    tail, head = (pb.MaskedChunk(data=b"masked"), pb.MaskedChunk(transcript1=b"t" * 32, stream=1))
    chunk = parse_masked_chunk(tail.SerializeToString() + head.SerializeToString())
    assert (chunk.stream, chunk.data) == (1, b"masked")
    assert isinstance(chunk.data, bytes)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=4), st.integers(0, 60), st.integers(0, 60))
def test_reading_in_place_agrees_with_protobuf(noise: bytes, at: int, cut: int) -> None:
    whole = masked_chunk(b"t" * 32, 300, 2**21, b"some masked data")
    data = whole[: min(at, cut)] + noise + whole[max(at, cut) :]
    chunk = _in_place(data)
    if chunk is not None:
        message = pb.MaskedChunk.FromString(data)
        assert message.SerializeToString(deterministic=True) == data
        assert (message.transcript1, message.stream, message.offset) == (chunk.transcript1, chunk.stream, chunk.offset)
        assert message.data == chunk.data
