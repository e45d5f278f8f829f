"""Shares of noise: how much each node adds, that it is never too little, and that no sum wraps because of it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedsecure.errors import ConfigError, SecAggError
from fedsecure.schema import Schema, TensorSpec
from fedsecure.secagg.values.noise import NoiseSpec, add_noise, dp_digest, fit_noise, kls_gap
from fedsecure.secagg.values.spec import StreamSpec, Weighting
from fedsecure.secagg.values.streams import Place, Stream, derive_streams, flatten, layout_digest, unflatten
from fedsecure.tensors import Tensors


def stream(values=9, *, frac_bits=20, ring_bits=64, clip_abs=1.0, name="m.statistics.v", dtype="float32") -> Stream:
    places = (Place("v", dtype, (values,)),)
    spec = StreamSpec(name, values + 1, ring_bits, frac_bits, clip_abs, Weighting.NONE, 1, layout_digest(places))
    return Stream(spec, places)


def noise_of(of=None, *, clip=Fraction(1), sigma=Fraction(1), nodes=5, colluders=1) -> NoiseSpec:
    return NoiseSpec(stream() if of is None else of, clip, sigma, nodes, colluders)


@pytest.mark.parametrize(
    ("nodes", "colluders", "shares", "std", "local", "gain"),
    [
        (3, 1, 2, 1.22, 1.73, 1.4),
        (5, 1, 3, 1.29, 2.24, 1.7),
        (10, 3, 4, 1.58, 3.16, 2.0),
        (20, 6, 8, 1.58, 4.47, 2.8),
        (50, 16, 18, 1.67, 7.07, 4.2),
    ],
)
def test_shares_and_gain_of_cohorts(nodes, colluders, shares, std, local, gain):
    noise = noise_of(nodes=nodes, colluders=colluders)
    alone = noise_of(nodes=nodes, colluders=nodes - 1)
    total = (noise.sigma * noise.sensitivity) ** 2
    assert noise.shares == shares
    assert noise.variance * shares == total == alone.variance
    assert math.sqrt(nodes * noise.variance / total) == pytest.approx(std, abs=0.005)
    assert math.sqrt(nodes * alone.variance / total) == pytest.approx(local, abs=0.005)
    assert math.sqrt(alone.variance / noise.variance) == pytest.approx(gain, abs=0.05)


@pytest.mark.parametrize(("nodes", "withstood"), [(3, 1), (4, 1), (5, 2), (10, 3), (50, 17)])
def test_beyond_what_the_masks_withstand_each_share_is_all_of_the_noise(nodes, withstood):
    assert noise_of(nodes=nodes, colluders=withstood).shares >= 2
    for colluders in (withstood + 1, nodes - 1):
        assert noise_of(nodes=nodes, colluders=colluders).shares == 1


def test_the_sensitivity_is_never_rounded_down():
    for values in (1, 2, 9, 1000, 10**6 - 1):
        found = noise_of(stream(values), clip=Fraction(1, 3)).sensitivity - Fraction(1 << 20, 3)
        assert found**2 >= values
        assert (found - Fraction(1, 1 << 31)) ** 2 < values
    assert noise_of(stream(9)).sensitivity == (1 << 20) + 3
    counts = stream(10, frac_bits=0, clip_abs=1000.0, dtype="int64")
    assert noise_of(counts, clip=Fraction(1), sigma=Fraction(10)).sensitivity == 1  # nothing is rounded


def test_one_record_moves_a_ring_vector_by_less_than_the_sensitivity():
    of = stream(50, frac_bits=4)
    noise = noise_of(of, clip=Fraction(1, 2), sigma=Fraction(10))
    rng = np.random.default_rng(2)
    for _ in range(200):
        others, record = rng.uniform(-0.5, 0.5, 50), rng.normal(size=50)
        record *= 0.499999 / np.linalg.norm(record)
        without, with_it = (
            flatten(of, {"v": np.float32(values)}, nodes=5)[0].view(np.int64)[:-1]
            for values in (others, others + record)
        )
        assert 0 < np.linalg.norm(with_it - without) <= noise.sensitivity


@pytest.mark.parametrize(("std", "tau"), [(1, "5e-04"), (2, "7e-17"), (3, "3e-38")])
def test_tau_of_fifty_shares(std, tau):
    assert f"{kls_gap(Fraction(std**2), 50):.0e}" == tau


def test_tau_of_little_and_of_none():
    assert kls_gap(Fraction(9), 1) == 0.0
    assert 0 < kls_gap(Fraction(10**6), 50) < 1e-300
    noise = noise_of(stream(100, frac_bits=0, clip_abs=1000.0, dtype="int64"), sigma=Fraction(6))
    assert noise.gap == 100 * kls_gap(Fraction(12), 5)


@pytest.mark.parametrize(("shares", "variance"), [(2, 1.0), (3, 0.5), (5, 1.0)])
def test_tau_bounds_what_it_says(shares, variance):
    """The sum's probabilities, by convolution, against the discrete Gaussian's of the same variance."""
    values = np.arange(-60, 61).astype(float)
    share = np.exp(-(values**2) / (2 * variance))
    total = np.ones(1)
    for _ in range(shares):
        total = np.convolve(total, share / share.sum())
    reach = total.size // 2
    around = np.arange(-reach, reach + 1).astype(float)
    due = np.exp(-(around**2) / (2 * shares * variance))
    likely = np.abs(around) < 8 * math.sqrt(shares * variance)
    ratio = np.log(total[likely]) - np.log((due / due.sum())[likely])
    assert 0 < np.abs(ratio).max() < kls_gap(Fraction(variance), shares)


def test_the_noise_added_has_the_variance_and_tells_no_clipped_count():
    of = stream(20_000)
    noise = noise_of(of, sigma=Fraction(3))
    vector = np.full(20_001, 2**63 + 5, np.uint64)
    add_noise(vector, noise)
    assert vector[-1] == 0
    drawn = (vector[:-1] - np.uint64(2**63 + 5)).view(np.int64) / math.sqrt(noise.variance)
    assert abs(drawn.mean()) < 7 / math.sqrt(20_000)
    assert abs(drawn.var() - 1) < 7 * math.sqrt(2 / 20_000)
    again = np.zeros(20_001, np.uint64)
    add_noise(again, noise)
    assert abs(np.corrcoef(drawn, again[:-1].view(np.int64))[0, 1]) < 7 / math.sqrt(20_000)


def test_at_the_bound_a_sum_is_exact_and_with_one_bit_more_it_wraps():
    nodes, schema = 5, Schema(summed=(TensorSpec("v", "float64", (3,), -1.0, 1.0, "a mean"),))
    (derived,) = derive_streams(schema, prefix="m", nodes=nodes)
    with pytest.raises(ConfigError, match="can wrap around"):
        noise_of(derived, sigma=Fraction(8))
    noise = fit_noise(derived, record_clip=Fraction(1), sigma=Fraction(8), nodes=nodes, colluders=1)
    spec = noise.stream.spec
    assert spec.frac_bits < derived.spec.frac_bits
    assert noise.most < 2**63 <= 2 * noise.most
    values = {"v": np.array([1.0, -1.0, 0.5])}
    whole = [flatten(noise.stream, values, nodes=nodes)[0] for _ in range(nodes)]
    extreme = np.array([noise.headroom(nodes), -noise.headroom(nodes), 0, 0], np.int64).view(np.uint64)
    total = np.add.reduce([*whole, extreme])
    due = [nodes * 2**spec.frac_bits + noise.headroom(nodes), -nodes * 2**spec.frac_bits - noise.headroom(nodes)]
    assert total.view(np.int64)[:2].tolist() == due
    summed, clipped = unflatten(noise.stream, total, contributors=nodes, nodes=nodes, headroom=noise.headroom(nodes))
    assert clipped == 0
    assert summed["v"][2] == 2.5
    with pytest.raises(SecAggError, match="BAD_SUM"):
        unflatten(noise.stream, total, contributors=nodes, nodes=nodes)
    with pytest.raises(ConfigError, match="can wrap around"):
        replace(noise, stream=Stream(replace(spec, frac_bits=spec.frac_bits + 1), noise.stream.places))
    wrapped = np.add.reduce([total, total]).view(np.int64)  # one bit more in value and noise alike
    assert wrapped[0] < 0 < wrapped[1]


def test_the_range_check_is_as_wide_as_the_noise_of_those_who_contributed():
    noise = noise_of()
    limit, headroom = noise.stream.spec.limit(4), noise.headroom(4)
    assert headroom**2 >= 144 * 4 * noise.variance > (headroom - 2) ** 2
    for beyond, fits in ((0, True), (1, False)):
        total = np.zeros(10, np.int64)
        total[3] = -(limit + headroom + beyond)
        arguments = (noise.stream, total.view(np.uint64))
        if fits:
            unflatten(*arguments, contributors=4, nodes=5, headroom=headroom)
        else:
            with pytest.raises(SecAggError, match="BAD_SUM"):
                unflatten(*arguments, contributors=4, nodes=5, headroom=headroom)


def test_whole_numbers_keep_to_what_float64_holds():
    counts = stream(4, frac_bits=0, clip_abs=2.0**49, dtype="int64")
    assert noise_of(counts, sigma=Fraction(1 << 20)).most < 2**53
    with pytest.raises(ConfigError, match="can wrap around"):
        noise_of(stream(4, frac_bits=0, clip_abs=1e15, dtype="int64"), clip=Fraction(1 << 31), sigma=Fraction(1 << 20))


def test_fit_noise_leaves_a_stream_with_room_as_it_is_and_counts_whole():
    assert fit_noise(stream(), record_clip=Fraction(1), sigma=Fraction(2), nodes=5, colluders=1) == noise_of(
        sigma=Fraction(2)
    )
    counts = stream(4, frac_bits=0, clip_abs=1000.0, dtype="int64")
    found = fit_noise(counts, record_clip=Fraction(1), sigma=Fraction(10), nodes=5, colluders=2)
    assert found.stream == counts
    assert found.variance == Fraction(100, 2)
    tensors = Tensors({"v": np.array([3, 0, 5, 7])})
    vector, _ = flatten(counts, tensors, nodes=5)
    add_noise(vector, found)
    back, _ = unflatten(counts, vector, contributors=1, nodes=5, headroom=found.headroom(1))
    assert back["v"].dtype == np.int64
    assert (np.abs(back["v"] - tensors["v"]) <= found.headroom(1)).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"of": stream(ring_bits=32)}, "32-bit ring has no room"),
        ({"clip": Fraction(0)}, "record_clip 0"),
        ({"clip": Fraction(-1)}, "record_clip -1"),
        ({"clip": Fraction(1 << 63)}, "record_clip"),
        ({"clip": 1.0}, "record_clip is not a fraction"),
        ({"sigma": 2}, "sigma is not a fraction"),
        ({"sigma": Fraction(0)}, "sigma 0"),
        ({"sigma": Fraction((1 << 300) + 1, 1 << 300)}, "sigma has more than 256 bits"),
        ({"colluders": 5}, "5 colluders of 5 nodes"),
        ({"colluders": -1}, "-1 colluders"),
        ({"nodes": 2}, "cohort of 2 nodes"),
        ({"of": stream(frac_bits=0), "sigma": Fraction(1)}, "standard deviation of 2.31 ring units"),
        ({"clip": Fraction(1 << 40), "sigma": Fraction(1 << 10)}, "can wrap around"),
        ({"clip": Fraction(1 << 62), "sigma": Fraction(1 << 20)}, "can wrap around"),
    ],
)
def test_noise_that_cannot_be_is_refused(changes, says):
    with pytest.raises(ConfigError, match=says):
        noise_of(**changes)


def test_three_units_are_the_least():
    counts = stream(4, frac_bits=0, clip_abs=1000.0, dtype="int64")
    assert noise_of(counts, sigma=Fraction(3), colluders=4).variance == 9
    with pytest.raises(ConfigError, match="allowed: >= 3"):
        noise_of(counts, sigma=Fraction(299, 100), colluders=4)


def test_vectors_that_are_not_the_streams():
    noise = noise_of()
    read_only = np.zeros(10, np.uint64)
    read_only.flags.writeable = False
    for vector in (np.zeros(9, np.uint64), np.zeros(10, np.uint32), np.zeros(10), read_only):
        with pytest.raises(ConfigError, match="a vector of"):
            add_noise(vector, noise)


def test_the_digest_tells_every_difference_and_not_the_order():
    one, other = noise_of(), noise_of(stream(name="m.statistics.w"))
    digests = [
        dp_digest(noises)
        for noises in (
            [], [one], [other], [one, other], [noise_of(clip=Fraction(2))], [noise_of(sigma=Fraction(2))],
            [noise_of(colluders=2)], [noise_of(nodes=6)], [noise_of(stream(frac_bits=21))], [noise_of(stream(8))],
        )
    ]  # fmt: skip
    assert digests[0] == b""
    assert all(len(digest) == 32 for digest in digests[1:])
    assert len(set(digests)) == len(digests)
    assert dp_digest([other, one]) == dp_digest([one, other])
    with pytest.raises(ConfigError, match="given twice"):
        dp_digest([one, one])
    with pytest.raises(ConfigError, match="different numbers"):
        dp_digest([one, noise_of(stream(name="m.statistics.w"), colluders=2)])
