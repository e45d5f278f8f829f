"""A chunk's bytes are written by hand, for speed: they must be protobuf's."""

from __future__ import annotations

import pytest

from fedsecure.secagg.messages import CHUNK_BYTES, masked_chunk, parse_masked_chunk
from fedsecure.secagg.v1 import secagg_pb2 as pb


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16383, 16384, CHUNK_BYTES - 1, CHUNK_BYTES])
@pytest.mark.parametrize(("stream", "offset"), [(0, 0), (1, 0), (15, 2**34)])
def test_a_chunk_is_what_protobuf_would_write(size: int, stream: int, offset: int) -> None:
    data = (bytes(range(1, 252)) * (size // 251 + 1))[:size]
    whole = pb.MaskedChunk(transcript1=b"t" * 32, stream=stream, offset=offset, data=data).SerializeToString()
    assert masked_chunk(b"t" * 32, stream, offset, data) == whole
    assert masked_chunk(b"t" * 32, stream, offset, memoryview(data)) == whole


def test_a_chunk_is_read_as_it_was_written() -> None:
    chunk = parse_masked_chunk(masked_chunk(b"t" * 32, 3, 2**20, b"masked"))
    assert (chunk.transcript1, chunk.stream, chunk.offset, chunk.data) == (b"t" * 32, 3, 2**20, b"masked")
