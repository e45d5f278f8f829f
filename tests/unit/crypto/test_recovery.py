"""Rebuilding from shares some of which are wrong: every pattern at small sizes, the largest cohort, and failure."""

from __future__ import annotations

from itertools import combinations

import pytest

from fedsecure.crypto import recovery
from fedsecure.crypto.recovery import MAX_ATTEMPTS, recover_secret
from fedsecure.crypto.shamir import PRIME, split_secret
from fedsecure.errors import SecAggError

SECRET = bytes(range(100, 132))


def shifted(share: bytes, by: int) -> bytes:
    return ((int.from_bytes(share, "big") + by) % PRIME).to_bytes(33, "big")


def spoiled(threshold: int, count: int, wrong=(), malformed=()) -> dict[int, bytes]:
    shares = dict(enumerate(split_secret(SECRET, threshold, count), start=1))
    for holder in wrong:
        shares[holder] = shifted(shares[holder], 1 + holder**7)
    for holder in malformed:
        shares[holder] = b"\xff" * 33
    return shares


def is_secret(candidate: bytearray) -> bool:
    return candidate == SECRET


@pytest.mark.parametrize(("threshold", "count"), [(3, 3), (3, 4), (4, 5), (7, 10)])
def test_every_pattern_of_wrong_shares_that_leaves_t(threshold, count):
    holders = range(1, count + 1)
    for size in range(count - threshold + 1):
        for wrong in combinations(holders, size):
            found = recover_secret(spoiled(threshold, count, wrong), threshold, "paris", is_secret)
            assert (bytes(found.secret), found.inconsistent) == (SECRET, wrong)


def test_holders_who_conspire_cannot_change_the_secret_but_can_make_others_look_wrong():
    """Among holders 1 to 7 the shares of 1 and 6 count for 7 and -7: shifted alike, they leave the secret as it is."""
    shares = spoiled(7, 10)
    for holder in (1, 6):
        shares[holder] = shifted(shares[holder], 1)
    found = recover_secret(shares, 7, "paris", is_secret)
    assert (bytes(found.secret), found.inconsistent) == (SECRET, (8, 9, 10))


def test_malformed_shares_are_inconsistent():
    shares = spoiled(3, 6, wrong=(2,), malformed=(1, 5))
    found = recover_secret(shares, 3, "paris", is_secret)
    assert (bytes(found.secret), found.inconsistent) == (SECRET, (1, 2, 5))


@pytest.mark.parametrize("wrong", [(1, 2), (1, 50), (33, 34), (17, 34), (49, 50)])
def test_two_wrong_ones_of_fifty(wrong):
    found = recover_secret(spoiled(34, 50, wrong), 34, "paris", is_secret)
    assert (bytes(found.secret), found.inconsistent) == (SECRET, wrong)


def test_too_few_well_formed_shares():
    with pytest.raises(SecAggError, match="^TOO_FEW_SHARES: 2 of paris where 3 are needed"):
        recover_secret(spoiled(3, 4, malformed=(1, 2)), 3, "paris", is_secret)


def test_too_many_wrong_shares_or_another_secret():
    for shares, accept in ((spoiled(4, 5, wrong=(1, 2)), is_secret), (spoiled(4, 5), lambda _: False)):
        with pytest.raises(SecAggError, match="^BAD_SHARE: 5 shares of paris do not give") as caught:
            recover_secret(shares, 4, "paris", accept)
        assert caught.value.hint


def test_attempts_are_bounded_and_refused_secrets_are_wiped():
    tried: list[tuple[bytes, bytearray]] = []

    def refuse(candidate: bytearray) -> bool:
        tried.append((bytes(candidate), candidate))
        return False

    with pytest.raises(SecAggError):
        recover_secret(spoiled(4, 7), 4, "paris", refuse)
    assert [before for before, _ in tried] == [SECRET] * 35
    assert not any(any(buffer) for _, buffer in tried)
    tried.clear()
    with pytest.raises(SecAggError):
        recover_secret(spoiled(4, 64), 4, "paris", refuse)
    assert len(tried) == MAX_ATTEMPTS


@pytest.mark.parametrize(("count", "threshold"), [(3, 3), (5, 4), (7, 4), (2, 3)])
def test_sets_are_all_of_them_and_each_once(count, threshold):
    holders = tuple(range(1, count + 1))
    found = list(recovery._subsets(holders, threshold))
    assert sorted(found) == (sorted(combinations(holders, threshold)) or [holders])


def test_the_secret_does_not_show_itself():
    assert repr(recover_secret(spoiled(2, 2), 2, "paris", is_secret)) == "Recovered(inconsistent=())"
