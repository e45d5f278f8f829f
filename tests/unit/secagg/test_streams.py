"""Streams: the same from the same schema, every method's sums exact in them, and no other tensor let in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedsecure.errors import ConfigError, DataError, SecAggError
from fedsecure.method import sum_contributions
from fedsecure.schema import Axis, Contribution, Schema, TensorSpec
from fedsecure.secagg.values.spec import StreamSpec, Weighting, check_offer, check_streams, public_weights
from fedsecure.secagg.values.streams import SMALL, Place, derive_streams, flatten, layout_digest, unflatten
from fedsecure.tensors import Tensors

RECORDS = TensorSpec("records", "int64", (1,), 0, 1000, "number of records", "records")
SCHEMA = Schema(
    summed=(
        TensorSpec("w.b", "float32", (2, 3), -4000.0, 4000.0, "weighted"),
        TensorSpec("w.a", "float32", (), -4000.0, 4000.0, "weighted"),
        TensorSpec("mass", "float64", (2,), 0.0, 1000.0, "weighted"),
        RECORDS,
    )
)
SPEC = StreamSpec("x", 3, 32, 8, 4.0, Weighting.NONE, 1, bytes(32))


def contribution(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 1000))
    return {
        "w.b": (n * rng.uniform(-4, 4, (2, 3))).astype(np.float32),
        "w.a": np.array(n * rng.uniform(-4, 4), np.float32),
        "mass": n * rng.uniform(0, 1, 2),
        "records": np.array([n]),
    }


def test_tensors_of_one_kind_and_range_share_a_stream():
    streams = derive_streams(SCHEMA, prefix="m.update", nodes=5)
    assert [s.spec.name for s in streams] == ["m.update.mass", "m.update.records", "m.update.w.a"]
    assert [[p.name for p in s.places] for s in streams] == [["mass"], ["records"], ["w.a", "w.b"]]
    mass, records, weighted = (s.spec for s in streams)
    assert (records.ring_bits, records.frac_bits, records.weighting, records.max_count) == (64, 0, 0, 1)
    assert (weighted.ring_bits, weighted.clip_abs, weighted.max_count) == (64, 4.0, 1000)
    assert weighted.weighting == Weighting.COUNTS
    assert weighted.length == 8
    assert weighted.value_bound == 4000.0
    assert 5 * 4000 * 2**weighted.frac_bits < 2**63 <= 5 * 4000 * 2 ** (weighted.frac_bits + 1)
    assert mass.clip_abs == 1.0
    reordered = Schema(summed=tuple(reversed(SCHEMA.summed)))
    assert derive_streams(reordered, prefix="m.update", nodes=5) == streams


def test_the_layout_digest_is_as_written_out(vectors):
    case = vectors["layout"]
    places = [Place(name, dtype, tuple(shape)) for name, dtype, shape in case["places"]]
    assert layout_digest(places).hex() == case["digest"]
    for changed in (
        replace(places[2], shape=(300, 2)),
        replace(places[2], dtype="float64"),
        replace(places[2], name="v"),
    ):
        assert layout_digest([*places[:2], changed]).hex() != case["digest"]


def test_sums_are_those_of_the_plain_path_within_half_a_unit_a_node():
    nodes = {name: contribution(seed) for seed, name in enumerate("abcde")}
    plain = sum_contributions({n: Contribution(Tensors(c)) for n, c in nodes.items()}).summed
    for stream in derive_streams(SCHEMA, prefix="m", nodes=7):
        flat = [flatten(stream, c, nodes=7) for c in nodes.values()]
        assert [clipped for _, clipped in flat] == [0] * 5
        total = np.add.reduce([vector for vector, _ in flat])
        summed, clipped = unflatten(stream, total, contributors=5, nodes=7)
        assert clipped == 0
        for place in stream.places:
            got, due = summed[place.name], plain[place.name]
            assert got.dtype == due.dtype
            assert got.shape == due.shape
            assert np.abs(got - due).max() <= 5 * stream.spec.error_bound + 1e-15 * np.abs(due).max()


def test_clipped_values_are_counted_and_only_their_total_is_known():
    (stream,) = derive_streams(Schema(summed=(TensorSpec("v", "float32", (3,), -1.0, 1.0, "v"),)), prefix="m", nodes=3)
    vectors = [flatten(stream, {"v": np.array(v, np.float32)}, nodes=3) for v in ([2, -3, 0.5], [1, 1, 1.5], [0, 0, 0])]
    assert [clipped for _, clipped in vectors] == [2, 1, 0]
    summed, clipped = unflatten(stream, np.add.reduce([v for v, _ in vectors]), contributors=3, nodes=3)
    assert clipped == 3
    assert summed["v"].tolist() == [2.0, 0.0, 1.5]


def test_the_clipped_count_cannot_wrap_a_long_vector_of_many_nodes():
    spec = replace(SPEC, length=2**31 - 1)
    assert 50 * (spec.length - 1) >= 2**31  # what counting every value would come to
    assert 50 * spec.clipped_limit(50) < 2**31


@pytest.mark.parametrize(
    ("name", "settings", "exchange", "fractions"),
    [
        ("fedavg", {}, "round", {"model": (64, 24), "records": (64, 0)}),
        ("feddrm", {}, "update", {"shared": (64, 24), "records": (64, 0)}),
        ("fedspm", {"share_counts": True}, "counts", {"node_records": (64, 0)}),
        (
            "fedspm",
            {"diagnostics": "summed"},
            "update",
            {"shared": (64, 24), "records": (64, 0), "posterior": (64, 34), "log_likelihood": (64, 20)},
        ),
        ("fedaf", {}, None, {"class_weight": (64, 0), "mean_logits": (64, 53), "soft_labels": (64, 57)}),
        (
            "fedaf",
            {"averaging": "holders_weighted"},
            None,
            {"class_weight": (64, 0), "mean_logits": (64, 29), "soft_labels": (64, 34)},
        ),
    ],
)
def test_streams_of_every_method_for_fifty_nodes(make_plan, name, settings, exchange, fractions):
    from fedsecure.methods import build_method

    method = build_method(make_plan(name, **settings))
    exchange = exchange or next(e for e in method.exchanges if method.schema(e).summed)
    schema = method.schema(exchange)
    streams = derive_streams(schema, prefix=f"{name}.{exchange}", nodes=50)
    check_streams([s.spec for s in streams], 50, max_bytes=2**30)
    assert sorted(p.name for s in streams for p in s.places) == sorted(s.name for s in schema.summed)
    found = {s.places[0].name.split(".")[0]: (s.spec.ring_bits, s.spec.frac_bits) for s in streams}
    assert found == fractions
    extreme = {s.name: np.full(s.shape, s.high, s.dtype) for s in schema.summed}
    for stream in streams:
        vector, _ = flatten(stream, extreme, nodes=50)
        summed, _ = unflatten(stream, vector * vector.dtype.type(50), contributors=50, nodes=50)
        for place in stream.places:
            assert summed[place.name] == pytest.approx(50 * extreme[place.name].astype(np.float64), rel=1e-7)


def test_a_bound_that_no_float_divides_clips_nothing():
    records = TensorSpec("n", "int64", (1,), 0, 49, "n", "records")
    for bound in (1.0, 0.1, 1e10 / 3):
        schema = Schema(summed=(TensorSpec("v", "float64", (2,), -bound, bound, "v"), records))
        stream = derive_streams(schema, prefix="m", nodes=3)[1]
        assert stream.spec.value_bound >= bound
        assert flatten(stream, {"v": np.array([bound, -bound])}, nodes=3)[1] == 0


def test_long_floats_without_weights_take_the_32_bit_ring():
    for size, ring_bits in ((SMALL - 1, 64), (SMALL, 32)):
        schema = Schema(summed=(TensorSpec("v", "float32", (size,), -1.0, 1.0, "v"),))
        (stream,) = derive_streams(schema, prefix="m", nodes=50)
        assert stream.spec.ring_bits == ring_bits
    assert stream.spec.frac_bits == 25


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (TensorSpec("v", "bool", (2,), 0, 1, "v"), "tensor v: bool cannot be summed"),
        (TensorSpec("v", "uint8", (2,), 0, 1, "v"), "tensor v: uint8 cannot"),
        (TensorSpec("v", "float32", (Axis("k", 1, 2),), 0, 1, "v"), "tensor v: a shape that nodes choose"),
        (TensorSpec("v", "float32", (2,), -np.inf, np.inf, "v"), "tensor v: without a finite range"),
        (TensorSpec("v", "float32", (2,), 0, 0, "v"), "tensor v: without a finite range"),
        (TensorSpec("v", "int64", (2,), 0, 2**53 // 50 + 1, "v"), "m.v: whole numbers whose sum may reach"),
        (TensorSpec("v", "float32", (2,), 0, 1e18, "v"), "m.v: a sum of 50 nodes .*can wrap around"),
    ],
)
def test_what_cannot_be_summed_under_masks_is_named(spec, says):
    with pytest.raises(ConfigError, match=says):
        derive_streams(Schema(summed=(spec,)), prefix="m", nodes=50)


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("w.a", None, "tensor w.a: missing"),
        ("w.a", np.zeros((), np.float64), r"tensor w.a: float64\[\] where float32\[\] is due"),
        ("w.b", np.zeros((3, 2), np.float32), r"tensor w.b: float32\[3, 2\] where float32\[2, 3\]"),
        ("w.b", np.full((2, 3), np.nan, np.float32), "tensor w.b: 6 of 6 values are not finite"),
    ],
)
def test_flattening_refuses_by_name(name, array, says):
    stream = derive_streams(SCHEMA, prefix="m", nodes=3)[2]
    arrays = {k: v for k, v in {**contribution(0), name: array}.items() if v is not None}
    with pytest.raises(DataError, match=says):
        flatten(stream, arrays, nodes=3)


def test_a_hostile_sum_is_refused():
    stream = derive_streams(SCHEMA, prefix="m", nodes=3)[1]
    vector = np.array([3000, 3], np.uint64)
    assert unflatten(stream, vector, contributors=3, nodes=3)[0]["records"].tolist() == [3000]
    for bad, says in (
        (np.array([3002, 0], np.uint64), "BAD_SUM: tensor records"),
        (np.array([2**64 - 3002, 0], np.uint64), "BAD_SUM: tensor records"),
        (np.array([0, 4], np.uint64), "4 clipped values"),
        (np.array([0, 2**64 - 1], np.uint64), "-1 clipped values"),
        (np.array([0], np.uint64), r"a sum of uint64\[1\]"),
        (np.array([0, 0], np.uint32), "a sum of uint32"),
    ):
        with pytest.raises(SecAggError, match=says):
            unflatten(stream, bad, contributors=3, nodes=3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": "a b"}, "stream name 'a b' is malformed"),
        ({"length": 0}, "stream x: length 0"),
        ({"length": 2**31}, "length 2147483648"),
        ({"ring_bits": 48}, "ring_bits 48"),
        ({"frac_bits": 32}, "frac_bits 32"),
        ({"clip_abs": 0.0}, "clip_abs 0.0"),
        ({"clip_abs": float("nan")}, "clip_abs nan"),
        ({"clip_abs": float("inf")}, "clip_abs inf"),
        ({"weighting": 3}, "weighting 3"),
        ({"max_count": 2}, "max_count 2"),
        ({"weighting": Weighting.COUNTS, "max_count": 2**41}, "max_count"),
        ({"layout_digest": b""}, "layout_digest has 0 bytes"),
    ],
)
def test_hostile_specs_are_refused_before_anything_is_allocated(change, says):
    with pytest.raises(ConfigError, match=says):
        replace(SPEC, **change)


def test_a_coordinator_chooses_no_bound():
    other = replace(SPEC, name="y")
    check_offer([SPEC, other], [replace(SPEC), other])
    for offered, says in (
        ([replace(SPEC, clip_abs=2.0**20), other], "BAD_CONFIG: stream x: clip_abs 1048576.0 where 4.0 is due"),
        ([replace(SPEC, frac_bits=0), other], "frac_bits 0 where 8"),
        ([replace(SPEC, layout_digest=b"\1" * 32), other], "layout_digest 0101"),
        ([other, SPEC], "the streams y, x where x, y are due"),
        ([SPEC], "the streams x where"),
        ([], "the streams none where"),
    ):
        with pytest.raises(SecAggError, match=says):
            check_offer([SPEC, other], offered)


def test_a_session_is_bounded():
    check_streams([SPEC], 50, max_bytes=12)
    for streams, nodes, most, says in (
        ([], 3, 100, "0 streams"),
        ([SPEC] * 17, 3, 1000, "17 streams"),
        ([SPEC, SPEC], 3, 100, "two streams are named x"),
        ([SPEC], 3, 11, "12 bytes"),
        ([replace(SPEC, frac_bits=28)], 3, 100, "stream x: a sum of 3 nodes"),
    ):
        with pytest.raises(ConfigError, match=says):
            check_streams(streams, nodes, max_bytes=most)


def test_public_weights_never_sum_to_more_than_one():
    from fractions import Fraction

    for counts in ([1] * 49, [1, 2, 4], [10, 0, 3], list(range(1, 51))):
        weights = public_weights({f"n{i}": c for i, c in enumerate(counts)})
        total = sum(map(Fraction, weights.values()))
        assert 1 - Fraction(1, 2**46) < total <= 1
    with pytest.raises(ConfigError, match="public weights"):
        public_weights({"a": 0})
    with pytest.raises(ConfigError, match="has no public weights"):
        flatten(derive_streams(SCHEMA, prefix="m", nodes=3)[0], contribution(0), nodes=3, weight=0.5)
