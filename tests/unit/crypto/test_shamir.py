"""Shamir's sharing: known answers, wrong and malformed shares, and what may be shared at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsecure.crypto import shamir
from fedsecure.crypto.shamir import PRIME, SHARE_BYTES, combine_shares, inconsistent_shares, split_secret
from fedsecure.errors import SecAggError

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "secagg_primitives.json").read_text())["shamir"]
SECRET = bytes(range(100, 132))


def numbered(shares) -> dict[int, bytes]:
    return dict(enumerate(shares, start=1))


def test_the_modulus_is_the_smallest_prime_above_2_256():
    """By Fermat's test to the bases 2 and 3, which finds every composite here."""

    def probably_prime(n: int) -> bool:
        return all(pow(base, n - 1, n) == 1 for base in (2, 3))

    assert [n for n in range(2**256 + 1, PRIME + 1) if probably_prime(n)] == [PRIME]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['threshold']} of {len(c['shares'])}")
def test_known_shares_rebuild_the_secret(case):
    shares = numbered(bytes.fromhex(share) for share in case["shares"])
    first = dict(list(shares.items())[: case["threshold"]])
    last = dict(list(shares.items())[-case["threshold"] :])
    for some in (shares, first, last):
        assert combine_shares(some, case["threshold"], "paris").hex() == case["secret"]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['threshold']} of {len(c['shares'])}")
def test_splitting_evaluates_its_polynomial(case, monkeypatch):
    drawn = iter(int(c, 16) for c in case["coefficients"][1:])

    def draw(bound: int) -> int:
        assert bound == PRIME
        return next(drawn)

    monkeypatch.setattr(shamir.secrets, "randbelow", draw)
    shares = split_secret(bytes.fromhex(case["secret"]), case["threshold"], len(case["shares"]))
    assert [share.hex() for share in shares] == case["shares"]


def test_two_sharings_have_nothing_in_common():
    one, other = (split_secret(SECRET, 2, 64) for _ in range(2))
    assert not set(one) & set(other)
    assert {len(share) for share in one} == {SHARE_BYTES}


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_secret_has_32_bytes(size):
    with pytest.raises(ValueError, match="32 bytes"):
        split_secret(bytes(size), 2, 3)


@pytest.mark.parametrize(("threshold", "count"), [(0, 3), (1, 3), (4, 3), (2, 65), (2, 1), (-1, 3)])
def test_thresholds_that_are_none(threshold, count):
    with pytest.raises(ValueError, match="allowed: 2 <= threshold <= count <= 64"):
        split_secret(SECRET, threshold, count)


def test_too_few_shares():
    shares = numbered(split_secret(SECRET, 3, 5))
    with pytest.raises(SecAggError, match="^TOO_FEW_SHARES: 2 of paris where 3 are needed") as caught:
        combine_shares({1: shares[1], 5: shares[5]}, 3, "paris")
    assert caught.value.hint
    with pytest.raises(ValueError, match="a threshold of 1"):
        combine_shares(shares, 1, "paris")


@pytest.mark.parametrize(
    ("holder", "share"),
    [
        (2, b""),
        (2, bytes(32)),
        (2, bytes(34)),
        (2, PRIME.to_bytes(33, "big")),
        (2, b"\xff" * 33),
        (0, None),
        (65, None),
    ],
)
def test_malformed_shares_name_their_holder(holder, share):
    shares = numbered(split_secret(SECRET, 2, 3))
    shares[holder] = shares[1] if share is None else share
    with pytest.raises(SecAggError, match=f"^BAD_SHARE: the share of paris held by {holder} is malformed"):
        combine_shares(shares, 2, "paris")


def test_shares_of_no_secret():
    """The polynomial is the constant 2^256, which the field has and no 32 bytes are."""
    share = (2**256).to_bytes(33, "big")
    with pytest.raises(SecAggError, match="^BAD_SHARE: the shares of paris held by 3, 7 belong to no secret"):
        combine_shares({3: share, 7: share}, 2, "paris")


def test_shares_off_the_polynomial_are_found():
    shares = numbered(split_secret(SECRET, 3, 7))
    assert inconsistent_shares(shares, (2, 4, 6), 3, "paris") == ()
    for holder in (1, 5):
        shares[holder] = shares[holder][:-1] + bytes([shares[holder][-1] ^ 1])
    assert combine_shares(shares, 3, "paris") != SECRET
    assert combine_shares({x: shares[x] for x in (2, 4, 6)}, 3, "paris") == SECRET
    assert inconsistent_shares(shares, (2, 4, 6), 3, "paris") == (1, 5)


def test_no_error_shows_a_share():
    shares = {1: b"\x42" * 32, 2: b"\x42" * 33}
    with pytest.raises(SecAggError) as caught:
        combine_shares(shares, 2, "paris")
    assert "4242" not in f"{caught.value!r}{caught.value.hint}"
    assert "BBBB" not in f"{caught.value!r}{caught.value.hint}"
