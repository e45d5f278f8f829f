"""HKDF: RFC 5869's vectors, our labels' vectors, and that no two purposes have one key."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest

from fedsecure.crypto.keyschedule import StreamId, hkdf_sha256, pair_mask_key, pair_sign, self_mask_key, share_key

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_primitives.json").read_text())
OURS = VECTORS["schedule"]
SHARED, T1 = bytes.fromhex(OURS["shared"]), bytes.fromhex(OURS["transcript"]["digest"])
STREAM = StreamId("fedspm.shared", 32, 1000)


@pytest.mark.parametrize("vector", VECTORS["rfc5869"], ids=["A.1", "A.2", "A.3"])
def test_hkdf_is_rfc_5869s(vector):
    material, salt, info, output = (bytes.fromhex(vector[name]) for name in ("material", "salt", "info", "output"))
    assert hkdf_sha256(material, salt, info, len(output)) == output


def test_our_labels():
    one, other = OURS["participants"]
    assert (STREAM.name, STREAM.ring_bits, STREAM.length) == tuple(OURS["stream"])
    assert pair_mask_key(SHARED, T1, one, other, STREAM).hex() == OURS["keys"]["pairmask"]
    assert self_mask_key(SHARED, T1, one, STREAM).hex() == OURS["keys"]["selfmask"]
    assert share_key(SHARED, T1, one, other).hex() == OURS["keys"]["share"]
    assert len(OURS["keys"]["share"]) == 64


def test_a_pair_has_one_mask_key_and_opposite_signs():
    assert pair_mask_key(SHARED, T1, "a", "b", STREAM) == pair_mask_key(SHARED, T1, "b", "a", STREAM)
    assert (pair_sign("a", "b"), pair_sign("b", "a")) == (1, -1)


def test_the_two_directions_of_shares_have_two_keys():
    assert share_key(SHARED, T1, "a", "b") != share_key(SHARED, T1, "b", "a")


@pytest.mark.parametrize("names", [("node-1", "node-10", "node-2"), ("a", "ab", "b"), ("z", "é", "\U0001f600")])
def test_signs_order_every_cohort(names):
    """Of every three, one adds two masks, one adds one and one subtracts two: an order, not a cycle."""
    sums = sorted(sum(pair_sign(own, peer) for peer in names if peer != own) for own in names)
    assert sums == [-2, 0, 2]


def test_all_keys_of_some_sessions_differ():
    streams = [StreamId(name, bits, length) for name in ("s", "t") for bits in (32, 64) for length in (0, 1, 2**63)]
    keys = []
    for transcript in (T1, bytes(32)):
        for stream in streams:
            keys += [self_mask_key(SHARED, transcript, who, stream) for who in ("a", "b", "ab")]
            keys += [
                pair_mask_key(SHARED, transcript, *pair, stream) for pair in (("a", "b"), ("a", "ab"), ("b", "ab"))
            ]
        keys += [share_key(SHARED, transcript, *pair) for pair in permutations(("a", "b", "ab"), 2)]
    assert len({bytes(key) for key in keys}) == len(keys) == 2 * (12 * 6 + 6)


def test_ids_do_not_run_into_each_other():
    assert pair_mask_key(SHARED, T1, "ab", "c", STREAM) != pair_mask_key(SHARED, T1, "a", "bc", STREAM)


def test_faults_are_named():
    for call in (
        lambda: pair_mask_key(SHARED, T1, "a", "a", STREAM),
        lambda: share_key(SHARED, T1, "a", "a"),
        lambda: pair_sign("a", "a"),
    ):
        with pytest.raises(ValueError, match="'a' is paired with itself"):
            call()
    for material, transcript in ((SHARED[1:], T1), (SHARED, T1[1:]), (b"", T1), (SHARED, b"")):
        with pytest.raises(ValueError, match="32 secret bytes and a 32-byte transcript"):
            self_mask_key(material, transcript, "a", STREAM)
    for bits in (0, 16, 33):
        with pytest.raises(ValueError, match=f"a ring of {bits} bits"):
            StreamId("s", bits, 1)
    for length in (-1, 2**64):
        with pytest.raises(ValueError, match="elements"):
            StreamId("s", 32, length)
