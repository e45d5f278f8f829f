"""Masked vectors of constants look like nothing: chi-square over their bytes, and over those of their differences.

Keys are fresh in every run, so a bound is chosen at which a right implementation fails less than once in 10^9 runs of
all tests together; the last test shows what the same bound finds.
"""

from __future__ import annotations

import functools
from itertools import combinations

import numpy as np
import pytest
from adversary import Lab, Relay
from adversary_knowledge import joined
from scipy.stats import chi2

from fedsecure.crypto.keystream import Prg

VALUES = 2**16 - 1
#: Statistics that are held against the bound in all of this file, rounded up, and the bound on both sides. A hundredth
#: of 10^-9: with 256 bytes due of each value, the true distribution's far tails are a little heavier than chi-square's.
STATISTICS = 2000
LOW, HIGH = chi2.ppf(1e-11 / STATISTICS / 2, 255), chi2.isf(1e-11 / STATISTICS / 2, 255)
CONSTANTS = (0, 1, -1)
every_prg = pytest.mark.parametrize("prg", Prg)
both_rings = pytest.mark.parametrize("ring_bits", [32, 64])


@functools.cache
def masked(prg, constant, session=0):
    """node -> its masked vectors (64-bit, 32-bit) of ``constant``; ``session`` tells sessions apart."""
    lab = Lab(3, prg=prg, values=VALUES)
    for vectors in lab.vectors.values():
        for vector in vectors.values():
            vector[:] = np.array(constant, np.int64).astype(vector.dtype)
    relay = Relay(lab, lab.config(), lab.cast()).run(0, 2)
    return {n: dict(zip((64, 32), joined(relay.got[n][2], [64, 32]), strict=True)) for n in lab.names}


def statistics(words):
    """Pearson's statistic of the 256 byte values: over all bytes, and over those at each place of a word."""
    table = words.astype(words.dtype.newbyteorder("<")).view(np.uint8).reshape(len(words), -1)
    return [pearson(table.reshape(-1)), *(pearson(table[:, place]) for place in range(table.shape[1]))]


def pearson(values):
    counts, due = np.bincount(values, minlength=256), values.size / 256
    return float(((counts - due) ** 2).sum() / due)


def uniform(words):
    return all(LOW < statistic < HIGH for statistic in statistics(words))


@every_prg
@both_rings
@pytest.mark.parametrize("constant", CONSTANTS)
def test_masked_constants(prg, ring_bits, constant):
    for vectors in masked(prg, constant).values():
        assert uniform(vectors[ring_bits])
        assert uniform(np.diff(vectors[ring_bits]))


@every_prg
@both_rings
def test_differences_of_two_nodes(prg, ring_bits):
    """Of one session: a pair mask that both add with the same sign, or a mask used twice, would cancel in one."""
    for one, other in combinations(masked(prg, 0).values(), 2):
        assert uniform(one[ring_bits] - other[ring_bits])
        assert uniform(one[ring_bits] + other[ring_bits])


@every_prg
@both_rings
def test_differences_of_two_sessions(prg, ring_bits):
    """The same node, vector and configuration, masked again: every mask is another."""
    first, second = masked(prg, 0), masked(prg, 0, session=1)
    for node, vectors in first.items():
        assert uniform(vectors[ring_bits] - second[node][ring_bits])


@every_prg
def test_differences_of_two_streams(prg):
    """No word of one stream's masks is in another's: neither the low nor the high half."""
    for vectors in masked(prg, 0).values():
        long, short = vectors[64], vectors[32]
        assert uniform(long.astype(np.uint32) - short)
        assert uniform((long >> np.uint64(32)).astype(np.uint32) - short)
        halves = long.view(np.uint32)[: len(short)]
        assert uniform(halves - short)


def test_the_sum_of_all_is_still_masked():
    """All three: the pair masks cancel and the self masks are left."""
    for ring_bits in (32, 64):
        assert uniform(sum(v[ring_bits] for v in masked(Prg.AES_256_CTR, 0).values()))


@pytest.mark.parametrize(
    "fault", ["not masked", "top bit clear", "a byte unmasked", "one mask in 16", "repeats", "counts"]
)
def test_what_the_bound_finds(fault):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, VALUES + 1, np.uint32)
    assert uniform(words)
    faulty = {
        "not masked": np.zeros_like(words),
        "top bit clear": words & np.uint32(2**31 - 1),
        "a byte unmasked": words & np.uint32(0xFFFFFF00),
        "one mask in 16": np.where(np.arange(len(words)) % 16 == 0, 0, words),
        "repeats": np.resize(words[:4096], len(words)),
        "counts": np.arange(len(words), dtype=np.uint32),
    }[fault]
    assert not uniform(faulty)
