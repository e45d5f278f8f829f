"""Masks: keystreams of AES-256-CTR or ChaCha20 added to a vector of the ring 2^32 or 2^64, in place.

A mask is the keystream of a key that is used for this one mask (zero nonce, counter from zero), read as little-endian
words (NIST SP 800-38A, section 6.5; RFC 8439, section 2.4). All masks are added in one pass over the vector, block by
block, so that a block and the keystream stay in the processor's cache; nothing of the vector's size is ever copied.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fedsecure.crypto.secretbytes import SECRET_BYTES, wipe

__all__ = ["BLOCK", "Mask", "Prg", "add_masks"]

#: Elements of 32 bits that are masked at a time, and half as many of 64: with zeros and keystream they fill 384 KiB of
#: a processor's second-level cache. Larger blocks cost more in page faults, smaller ones in calls.
BLOCK = 1 << 15
#: The longest keystream (bytes): ChaCha20's counter has 32 bits and counts 64 bytes.
MAX_BYTES = 1 << 38
#: Elements that a thread takes at a time, when there are several.
_CHUNK = 32 * BLOCK
#: The most threads.
MAX_THREADS = 64

Words = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]


class Prg(IntEnum):
    """The generators, by their numbers in the session's configuration."""

    AES_256_CTR = 1
    CHACHA20 = 2


@dataclass(frozen=True, slots=True)
class Mask:
    """One mask: its ``key`` (32 bytes, for this mask alone) and whether it is taken away instead of added."""

    key: bytes | bytearray = field(repr=False)
    subtract: bool = False

    def __post_init__(self) -> None:
        if len(self.key) != SECRET_BYTES:
            raise ValueError(f"a mask's key has {SECRET_BYTES} bytes, not {len(self.key)}")


def add_masks(vector: Words, masks: Sequence[Mask], prg: Prg = Prg.AES_256_CTR, *, threads: int = 1) -> None:
    """Add every mask to ``vector``, modulo 2^32 or 2^64, in place. Adding one and subtracting it changes nothing.

    ``vector``: one-dimensional, contiguous, writable, of ``uint32`` or ``uint64``. ``threads`` (1 to 64) share the
    work and give the same result; where the system refuses one, the others do its part. Raises ``ValueError`` for
    another vector, or for a key used twice; after any other fault the vector is half masked and to be thrown away.
    """
    _check(vector, masks, threads)
    step = vector.size if threads == 1 else _CHUNK
    chunks = iter([(at, min(at + step, vector.size)) for at in range(0, vector.size, step or 1)])
    if threads == 1 or vector.size <= step:
        _mask_chunks(vector, masks, prg, chunks, threading.Lock())
    else:
        _in_threads(vector, masks, prg, chunks, threads)


def _check(vector: Words, masks: Sequence[Mask], threads: int) -> None:
    if vector.dtype.kind != "u" or vector.dtype.itemsize not in {4, 8}:
        raise ValueError(f"a vector of {vector.dtype} cannot be masked (allowed: uint32, uint64)")
    if vector.ndim != 1 or vector.nbytes > MAX_BYTES:
        raise ValueError(f"a vector of shape {vector.shape} cannot be masked (allowed: one axis, {MAX_BYTES} bytes)")
    if not (vector.flags.c_contiguous and vector.flags.writeable):
        raise ValueError("a vector to mask must be contiguous and writable")
    if len({hashlib.sha256(mask.key).digest() for mask in masks}) != len(masks):
        raise ValueError("two masks of one vector have the same key")
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"{threads} threads (allowed: 1 to {MAX_THREADS})")


def _in_threads(
    vector: Words, masks: Sequence[Mask], prg: Prg, chunks: Iterator[tuple[int, int]], threads: int
) -> None:
    """The caller and ``threads`` - 1 helpers take chunks until none is left."""
    lock, faults = threading.Lock(), list[BaseException]()

    def help_out() -> None:
        try:
            _mask_chunks(vector, masks, prg, chunks, lock)
        except BaseException as error:
            faults.append(error)

    helpers = []
    for _ in range(threads - 1):
        helper = threading.Thread(target=help_out, name="mask", daemon=True)
        try:
            helper.start()
        except RuntimeError:  # the system has no thread left: those that run do all the work
            break
        helpers.append(helper)
    help_out()
    for helper in helpers:
        helper.join()
    if faults:
        raise faults[0]


def _mask_chunks(
    vector: Words, masks: Sequence[Mask], prg: Prg, chunks: Iterator[tuple[int, int]], lock: threading.Lock
) -> None:
    """Mask chunk after chunk, with buffers of one block: zeros to encipher, and the keystream that comes of it."""
    size = min(4 * BLOCK, vector.nbytes)
    zeros, stream = memoryview(bytes(size)), bytearray(size)
    try:
        while True:
            with lock:
                chunk = next(chunks, None)
            if chunk is None:
                return
            _mask_chunk(vector, masks, prg, chunk, zeros, memoryview(stream))
    finally:
        wipe(stream)


def _mask_chunk(
    vector: Words,
    masks: Sequence[Mask],
    prg: Prg,
    chunk: tuple[int, int],
    zeros: memoryview[int],
    stream: memoryview[int],
) -> None:
    start, stop = chunk
    words: Words = np.frombuffer(stream, f"<u{vector.itemsize}")
    ciphers = [_encryptor(prg, mask.key, _start(prg, start * vector.itemsize)) for mask in masks]
    step = 4 * BLOCK // vector.itemsize
    for at in range(start, stop, step):
        part = vector[at : min(at + step, stop)]
        source, target, mask_words = zeros[: part.nbytes], stream[: part.nbytes], words[: part.size]
        for mask, cipher in zip(masks, ciphers, strict=True):
            cipher.update_into(source, target)
            (np.subtract if mask.subtract else np.add)(part, mask_words, out=part)


def _start(prg: Prg, offset: int) -> bytes:
    """The 16 bytes of nonce and counter from which the keystream begins at ``offset`` (bytes, a multiple of 64)."""
    if prg is Prg.AES_256_CTR:
        return (offset // 16).to_bytes(16, "big")
    return (offset // 64).to_bytes(4, "little") + bytes(12)


def _encryptor(prg: Prg, key: bytes | bytearray, start: bytes) -> CipherContext:
    if prg is Prg.AES_256_CTR:
        return Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    return Cipher(algorithms.ChaCha20(key, start), mode=None).encryptor()
