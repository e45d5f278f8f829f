"""Masked vectors on their way: out of a node in chunks, and into the coordinator's memory, one buffer an upload."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedsecure.crypto.keystream import Mask, Prg, add_masks
from fedsecure.errors import SecAggError
from fedsecure.secagg.machines.masking import wipe_masks
from fedsecure.secagg.protocol.codec import fault
from fedsecure.secagg.protocol.messages import CHUNK_BYTES, Chunk, masked_chunk
from fedsecure.secagg.values.fixedpoint import ring_dtype
from fedsecure.secagg.values.spec import StreamSpec
from fedsecure.tensors import Array

__all__ = ["Masked", "Upload", "little_endian", "masked_copies", "wire_dtype"]


def wire_dtype(ring_bits: int) -> np.dtype[Any]:
    """Ring elements as they travel and are hashed: little endian."""
    return np.dtype(f"<u{ring_bits // 8}")


def little_endian(vector: Array) -> memoryview[int]:
    """The bytes of a ring vector as they travel; no copy on a little-endian machine."""
    return vector.astype(vector.dtype.newbyteorder("<"), copy=False).data.cast("B")


def masked_copies(
    vectors: Mapping[str, Array],
    specs: Sequence[StreamSpec],
    masks: Sequence[Sequence[Mask]],
    prg: Prg,
    *,
    threads: int,
) -> tuple[list[Array], tuple[bytes, ...]]:
    """A copy of each stream's vector with its ``masks`` on, one pass each, and the SHA-256 of its bytes as they travel.

    The keys of all masks are overwritten, also when this raises.
    """
    copies, digests = [], []
    try:
        for spec, of_stream in zip(specs, masks, strict=True):
            vector = np.array(vectors[spec.name], ring_dtype(spec.ring_bits), order="C")
            add_masks(vector, of_stream, prg, threads=threads)
            copies.append(vector)
            digests.append(hashlib.sha256(little_endian(vector)).digest())
    finally:
        for of_stream in masks:
            wipe_masks(of_stream)
    return copies, tuple(digests)


class Masked:
    """The masked vectors of one node, to be sent once: ``chunks()`` in order, then ``done``.

    ``stream_sha256``: of each vector, in the session's order. ``done``: ``Signed{MaskedDone}``. ``nbytes``: of all
    vectors. The chunks may be made again, should the connection break: they are the same.
    """

    __slots__ = ("_transcript1", "_vectors", "done", "nbytes", "stream_sha256")

    def __init__(self, transcript1: bytes, vectors: Sequence[Array], stream_sha256: tuple[bytes, ...], done: bytes):
        self._transcript1, self._vectors = transcript1, tuple(vectors)
        self.stream_sha256, self.done = stream_sha256, done
        self.nbytes: int = sum(vector.nbytes for vector in vectors)

    def chunks(self) -> Iterator[bytes]:
        """``MaskedChunk`` messages of at most 1 MiB of data, stream by stream, each from its first byte on."""
        for index, vector in enumerate(self._vectors):
            data = little_endian(vector)
            for offset in range(0, len(data), CHUNK_BYTES):
                yield masked_chunk(self._transcript1, index, offset, data[offset : offset + CHUNK_BYTES])

    def __repr__(self) -> str:
        return f"Masked({len(self._vectors)} streams, {self.nbytes} bytes)"


class Upload:
    """One node's masked vectors as they arrive, hashed on the way. Sizes are those of the configuration: no byte more
    is ever allocated or taken. Every fault is a ``SecAggError`` BAD_VECTOR, after which it is of no use."""

    __slots__ = ("_buffers", "_hashes", "_index", "_node", "_offset", "_transcript1")

    def __init__(self, node: str, transcript1: bytes, specs: Sequence[StreamSpec]) -> None:
        self._node, self._transcript1 = node, transcript1
        self._buffers: list[Array] = [np.empty(spec.length, wire_dtype(spec.ring_bits)) for spec in specs]
        self._hashes = [hashlib.sha256() for _ in specs]
        self._index = self._offset = 0

    def take(self, chunk: Chunk) -> None:
        """The next chunk; no gap, no overlap, nothing beyond the end of a stream."""
        if chunk.transcript1 != self._transcript1:
            raise fault("BAD_VECTOR", f"a chunk of {self._node} is of another session")
        if self._index == len(self._buffers):
            raise fault("BAD_VECTOR", f"a chunk of {self._node} after the last stream's end")
        if (chunk.stream, chunk.offset) != (self._index, self._offset):
            raise fault(
                "BAD_VECTOR",
                f"a chunk of {self._node} of stream {chunk.stream} at byte {chunk.offset} where stream {self._index} "
                f"at byte {self._offset} is due",
            )
        target = self._buffers[self._index].data.cast("B")
        end = self._offset + len(chunk.data)
        if end > len(target):
            raise fault("BAD_VECTOR", f"stream {self._index} of {self._node} goes on after {len(target)} bytes")
        target[self._offset : end] = chunk.data
        self._hashes[self._index].update(chunk.data)
        self._offset = end
        if end == len(target):
            self._index, self._offset = self._index + 1, 0

    def finish(self, stream_sha256: Sequence[bytes]) -> list[Array]:
        """The vectors, complete and with the digests that their node signed."""
        if self._index != len(self._buffers):
            raise fault("BAD_VECTOR", f"the vectors of {self._node} end in stream {self._index} at {self._offset}")
        if [h.digest() for h in self._hashes] != list(stream_sha256):
            raise SecAggError(
                f"BAD_VECTOR: the vectors of {self._node} do not have the digests that it signed",
                hint="they were changed on the way",
            )
        return [buffer.astype(ring_dtype(8 * buffer.itemsize), copy=False) for buffer in self._buffers]
