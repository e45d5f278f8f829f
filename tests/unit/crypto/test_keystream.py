"""Masks: the standards' keystreams, cancelling, threads, and vectors that cannot be masked."""

from __future__ import annotations

import hashlib
import json
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from fedsecure.crypto import keystream
from fedsecure.crypto.keystream import BLOCK, Mask, Prg, add_masks

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_primitives.json").read_text())
RINGS = (np.uint32, np.uint64)


def key(number: int) -> bytes:
    return hashlib.sha256(f"key {number}".encode()).digest()


def keystream_bytes(prg: Prg, secret: bytes, start: bytes, length: int) -> bytes:
    out = bytearray(length)
    keystream._encryptor(prg, secret, start).update_into(bytes(length), out)
    return bytes(out)


def test_aes_is_sp_800_38as():
    secret, counter, plaintext, ciphertext = (
        bytes.fromhex(VECTORS["sp800_38a"][name]) for name in ("key", "counter", "plaintext", "ciphertext")
    )
    stream = keystream_bytes(Prg.AES_256_CTR, secret, counter, len(plaintext))
    assert bytes(a ^ b for a, b in zip(stream, plaintext, strict=True)) == ciphertext


def test_chacha20_is_rfc_8439s():
    vector = VECTORS["rfc8439_cipher"]
    start = vector["counter"].to_bytes(4, "little") + bytes.fromhex(vector["nonce"])
    plaintext = bytes.fromhex(VECTORS["sunscreen"])
    stream = keystream_bytes(Prg.CHACHA20, bytes.fromhex(vector["key"]), start, len(plaintext))
    assert bytes(a ^ b for a, b in zip(stream, plaintext, strict=True)).hex() == vector["ciphertext"]


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize(("prg", "name"), [(Prg.AES_256_CTR, "aes-256-ctr"), (Prg.CHACHA20, "chacha20")])
def test_a_mask_is_the_keystream_in_little_endian_words(prg, name, ring):
    secret, stream = bytes.fromhex(VECTORS["schedule"]["keys"]["pairmask"]), VECTORS["schedule"]["keystreams"][name]
    words = np.frombuffer(bytes.fromhex(stream), np.dtype(ring).newbyteorder("<"))
    vector = np.arange(words.size, dtype=ring)
    add_masks(vector, [Mask(secret)], prg)
    assert vector.tolist() == (np.arange(words.size, dtype=ring) + words).tolist()
    taken = np.zeros(words.size, ring)
    add_masks(taken, [Mask(secret, subtract=True)], prg)
    assert taken.tolist() == (np.zeros(words.size, ring) - words).tolist()


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("prg", Prg)
@pytest.mark.parametrize("size", [0, 1, 15, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_blocks_join_into_one_keystream(size, prg, ring):
    vector = np.zeros(size, ring)
    add_masks(vector, [Mask(key(0))], prg)
    whole = keystream_bytes(prg, key(0), bytes(16), vector.nbytes)
    assert np.array_equal(vector, np.frombuffer(whole, np.dtype(ring).newbyteorder("<")))


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("prg", Prg)
def test_threads_give_the_same_result(prg, ring, monkeypatch):
    monkeypatch.setattr(keystream, "_CHUNK", 2 * BLOCK)
    masks = [Mask(key(i), subtract=i % 2 == 1) for i in range(3)]
    alone = np.arange(9 * BLOCK + 5, dtype=ring)
    shared = alone.copy()
    add_masks(alone, masks, prg)
    add_masks(shared, masks, prg, threads=3)
    assert np.array_equal(alone, shared)
    assert not np.array_equal(alone, np.arange(9 * BLOCK + 5, dtype=ring))


def test_a_refused_thread_leaves_the_work_to_the_others(monkeypatch):
    monkeypatch.setattr(keystream, "_CHUNK", BLOCK)
    alone, shared = np.zeros(4 * BLOCK, np.uint32), np.zeros(4 * BLOCK, np.uint32)
    add_masks(alone, [Mask(key(0))])

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    add_masks(shared, [Mask(key(0))], threads=4)
    assert np.array_equal(alone, shared)


def test_a_fault_in_a_thread_reaches_the_caller(monkeypatch):
    monkeypatch.setattr(keystream, "_CHUNK", BLOCK)

    def fail(*_: object) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(keystream, "_encryptor", fail)
    with pytest.raises(MemoryError, match="none left"):
        add_masks(np.zeros(4 * BLOCK, np.uint32), [Mask(key(0))], threads=2)


def test_nothing_of_the_size_of_the_vector_is_allocated():
    """Two buffers of a block (256 KiB each) and little more, for a vector of 32 MiB."""
    vector = np.zeros(1 << 23, np.uint32)
    tracemalloc.start()
    try:
        add_masks(vector, [Mask(key(i)) for i in range(3)])
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_the_two_generators_and_any_two_keys_differ():
    streams = []
    for prg in Prg:
        for number in range(4):
            vector = np.zeros(64, np.uint64)
            add_masks(vector, [Mask(key(number))], prg)
            streams.append(vector)
    assert len({stream.tobytes() for stream in streams}) == len(streams)
    assert len(np.unique(np.concatenate(streams))) == 64 * len(streams)


@pytest.mark.parametrize("prg", Prg)
def test_mask_bytes_are_uniform(prg):
    """Pearson's chi-square over byte values, byte pairs and each byte of a word; the keys are fixed, so this either
    always passes or never does. The bounds are the two-sided 1e-6 quantiles."""
    vector = np.zeros(1 << 18, np.uint32)
    add_masks(vector, [Mask(key(7))], prg)
    octets = vector.view(np.uint8)
    for values, cells in (
        (octets, 256),
        (vector.view(np.uint16), 65536),
        *((octets[lane::4], 256) for lane in range(4)),
    ):
        expected = values.size / cells
        statistic = float(((np.bincount(values, minlength=cells) - expected) ** 2).sum() / expected)
        low, high = chi2.ppf([5e-7, 1 - 5e-7], cells - 1)
        assert low < statistic < high


@pytest.mark.parametrize(
    ("vector", "fault"),
    [
        (np.zeros(4, np.int64), "int64 cannot be masked"),
        (np.zeros(4, np.float32), "float32 cannot be masked"),
        (np.zeros(4, np.uint8), "uint8 cannot be masked"),
        (np.zeros((2, 2), np.uint32), r"shape \(2, 2\)"),
        (np.zeros((), np.uint32), r"shape \(\)"),
        (np.zeros(8, np.uint32)[::2], "contiguous and writable"),
        (np.frombuffer(bytes(16), np.uint32), "contiguous and writable"),
        (np.broadcast_to(np.uint64(0), 2**35 + 1), "cannot be masked"),
    ],
)
def test_vectors_that_cannot_be_masked(vector, fault):
    with pytest.raises(ValueError, match=fault):
        add_masks(vector, [Mask(key(0))])


def test_other_faults_are_named():
    for size in (0, 16, 31, 33):
        with pytest.raises(ValueError, match="32 bytes"):
            Mask(bytes(size))
    for threads in (0, 65):
        with pytest.raises(ValueError, match="threads"):
            add_masks(np.zeros(4, np.uint32), [], threads=threads)
    with pytest.raises(ValueError, match="same key"):
        add_masks(np.zeros(4, np.uint32), [Mask(key(0)), Mask(bytearray(key(0)), subtract=True)])


def test_a_mask_does_not_show_its_key():
    assert key(0).hex() not in repr(Mask(key(0))).lower()
    assert str(key(0)) not in repr(Mask(key(0)))
