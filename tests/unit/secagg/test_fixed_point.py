"""Fixed point: bit for bit as written out in fractions, never wrapping within the bound, and exact in the sum."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.errors import ConfigError, DataError, SecAggError
from fedsecure.secagg.values.fixedpoint import (
    BLOCK,
    check_no_wraparound,
    dequantise,
    largest_frac_bits,
    quantise,
    ring_dtype,
    signed,
    sum_limit,
    weighted_bound,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_encoding.json").read_text())


def on_ring(values, *, ring_bits, frac_bits, bound, **more):
    out = np.empty(values.size, ring_dtype(ring_bits))
    clipped = quantise(values, out, ring_bits=ring_bits, frac_bits=frac_bits, bound=bound, name="w", **more)
    return out, clipped


@pytest.mark.parametrize("case", VECTORS["fixed_point"], ids=lambda c: f"{c['ring_bits']}-{c['frac_bits']}")
def test_as_written_out_in_fractions(case):
    values = np.array([float.fromhex(v) for v in case["values"]], np.float32)
    out, clipped = on_ring(values, **{key: case[key] for key in ("ring_bits", "frac_bits", "bound")})
    assert [str(element) for element in out] == case["elements"]
    assert clipped == case["clipped"]


@pytest.mark.parametrize(
    ("ring_bits", "weight", "nodes", "bounds_and_bits"),
    [
        (32, 50, 50, {1: 25, 4: 23, 8: 22, 32: 20}),
        (32, 10, 10, {1: 27, 4: 25, 8: 24, 32: 22}),
        (32, 1, 50, {1: 30, 4: 28, 8: 27, 32: 25}),
        (64, 50 * 2**20, 50, {4: 35, 32: 32}),
    ],
)
def test_the_table_of_largest_fractions(ring_bits, weight, nodes, bounds_and_bits):
    for bound, bits in bounds_and_bits.items():
        assert largest_frac_bits(ring_bits, bound, weight, nodes) == bits
        check_no_wraparound(ring_bits, bits, bound, weight, nodes)
        with pytest.raises(ConfigError, match="can wrap around") as caught:
            check_no_wraparound(ring_bits, bits + 1, bound, weight, nodes)
        assert caught.value.hint == f"set at most {bits} fractional bits"


@pytest.mark.parametrize(("ring_bits", "nodes", "bound"), [(32, 50, 8.0), (32, 3, 1.0), (64, 50, 1e10), (64, 64, 1.0)])
def test_at_the_bound_every_sum_is_exact_and_one_bit_more_wraps(ring_bits, nodes, bound):
    bits = largest_frac_bits(ring_bits, bound, nodes, nodes)
    for sign in (1, -1):
        one, _ = on_ring(np.array([sign * bound]), ring_bits=ring_bits, frac_bits=bits, bound=bound)
        total = one * ring_dtype(ring_bits).type(nodes)
        assert int(signed(total)[0]) == sign * nodes * round(Fraction(bound) * 2**bits)
    wide = one.dtype.type(2 * int(-signed(one)[0])) * one.dtype.type(nodes)  # + bound with one bit more
    assert int(signed(np.array([wide]))[0]) != 2 * nodes * int(-signed(one)[0])


@st.composite
def cohorts(draw):
    """Ring, f, B and the values of each of n nodes, at a bound that may just not wrap."""
    ring_bits = draw(st.sampled_from([32, 64]))
    nodes = draw(st.integers(1, 12))
    bound = draw(st.floats(2.0**-10, 2.0**20))
    bits = draw(st.integers(0, largest_frac_bits(ring_bits, bound, nodes, nodes)))
    near = st.floats(-2 * bound, 2 * bound) | st.sampled_from([bound, -bound])
    vectors = draw(st.lists(st.lists(near, min_size=3, max_size=3), min_size=nodes, max_size=nodes))
    return ring_bits, bits, bound, np.array(vectors, np.float64)


@given(cohorts())
@settings(max_examples=150, deadline=None)
def test_the_sum_is_that_of_the_integers_and_within_half_a_unit_a_node(cohort):
    ring_bits, bits, bound, vectors = cohort
    total, expected = np.zeros(3, ring_dtype(ring_bits)), [0, 0, 0]
    for row in vectors:
        out, clipped = on_ring(row, ring_bits=ring_bits, frac_bits=bits, bound=bound)
        assert clipped == sum(abs(v) > bound for v in row)
        total += out
        expected = [
            e + round(Fraction(np.clip(v, -bound, bound)) * 2**bits) for e, v in zip(expected, row, strict=True)
        ]
    assert [int(s) for s in signed(total)] == expected
    for s, column in zip(expected, vectors.T, strict=True):
        true = sum(Fraction(np.clip(v, -bound, bound)) for v in column)
        assert abs(Fraction(s, 2**bits) - true) <= Fraction(len(vectors), 2 ** (bits + 1))
    read = dequantise(total, frac_bits=bits, limit=sum_limit(bits, bound, len(vectors), len(vectors)), name="w")
    assert [float(Fraction(s, 2**bits)) for s in expected] == read.tolist()


@given(bound=st.floats(1e-6, 1e12), weight=st.floats(0, 1))
def test_a_weighted_bound_is_never_rounded_up(bound, weight):
    assert Fraction(weighted_bound(bound, weight)) <= Fraction(bound) * Fraction(weight)
    assert weighted_bound(bound, weight) == pytest.approx(bound * weight, rel=1e-15)


def test_public_weights_are_multiplied_in_after_clipping():
    values = np.array([3.0, -3.0, 0.5])
    out, clipped = on_ring(values, ring_bits=32, frac_bits=8, bound=2.0, weight=0.25)
    assert signed(out).tolist() == [128, -128, 32]
    assert clipped == 2


def test_long_vectors_go_by_blocks_and_any_shape_is_flattened():
    values = np.arange(BLOCK + 6, dtype=np.float32).reshape(2, -1)
    out, _ = on_ring(values, ring_bits=64, frac_bits=3, bound=1e6)
    assert np.array_equal(out, 8 * np.arange(BLOCK + 6, dtype=np.uint64))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, BLOCK + 1])
def test_what_is_not_finite_is_refused_by_name(bad, at):
    values = np.zeros(BLOCK + 2, np.float32)
    values[at] = bad
    with pytest.raises(DataError, match=f"tensor w: 1 of {BLOCK + 2} values are not finite"):
        on_ring(values, ring_bits=32, frac_bits=8, bound=1.0)


def test_a_sum_beyond_what_its_contributors_can_give_is_refused():
    limit = sum_limit(4, 1.0, 3, 3)
    assert limit == 49
    for reading, fits in ((49, True), (-49, True), (50, False), (-50, False), (-(2**31), False)):
        total = np.array([reading], np.int32).view(np.uint32)
        if fits:
            assert dequantise(total, frac_bits=4, limit=limit, name="w").tolist() == [reading / 16]
            continue
        with pytest.raises(SecAggError, match="tensor w: the sum lies outside"):
            dequantise(total, frac_bits=4, limit=limit, name="w")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((16, 0, 1.0, 1, 1), "ring_bits: 16"),
        ((32, 32, 1.0, 1, 1), "frac_bits 32 is out of range"),
        ((32, -1, 1.0, 1, 1), "frac_bits -1"),
        ((32, 0, 0.0, 1, 1), "clip_abs 0.0"),
        ((32, 0, float("nan"), 1, 1), "clip_abs nan"),
        ((32, 0, 1.0, 1, 0), "0 nodes"),
        ((32, 0, 1e9, 50, 50), "can wrap around in 32 bits"),
        ((64, 0, 1e18, 50, 50), "can wrap around in 64 bits"),
    ],
)
def test_bounds_that_make_no_sense_are_named(arguments, says):
    with pytest.raises(ConfigError, match=says) as caught:
        check_no_wraparound(*arguments, name="stream x")
    if "32 bits" in says:
        assert caught.value.hint == "use the 64-bit ring"


def test_a_value_that_would_leave_the_ring_alone_is_refused():
    with pytest.raises(ConfigError, match="tensor w"):
        on_ring(np.zeros(1), ring_bits=32, frac_bits=31, bound=1.0)
    with pytest.raises(ConfigError, match="weight 1.5"):
        on_ring(np.zeros(1), ring_bits=32, frac_bits=0, bound=1.0, weight=1.5)
