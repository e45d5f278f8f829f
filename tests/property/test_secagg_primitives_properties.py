"""Masks cancel over any cohort; any t shares of n rebuild a secret, and t - 1 fit every secret."""

from __future__ import annotations

import hashlib
from itertools import combinations
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.crypto.agreement import AgreementKey
from fedsecure.crypto.keyschedule import StreamId, pair_mask_key, pair_sign, self_mask_key, share_key
from fedsecure.crypto.keystream import Mask, Prg, add_masks
from fedsecure.crypto.sealedshares import SharePair, open_shares, seal_shares
from fedsecure.crypto.shamir import PRIME, combine_shares, inconsistent_shares, split_secret

COHORTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), min_size=2, max_size=8, unique=True
)
T1 = bytes(range(32))


def secret_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@given(cohort=COHORTS, ring=st.sampled_from([32, 64]), prg=st.sampled_from(Prg), length=st.integers(0, 300))
@settings(max_examples=30, deadline=None)
def test_masks_cancel_over_any_cohort(cohort, ring, prg, length):
    """Pair masks vanish from the sum; self masks are then taken away, and the sum of the vectors is exact."""
    stream, kind = StreamId("s", ring, length), f"uint{ring}"
    keys = {name: AgreementKey(secret_of(name)) for name in cohort}
    total, clear = np.zeros(length, kind), np.zeros(length, kind)
    for number, own in enumerate(cohort):
        vector = np.full(length, 2**ring - 1 - number, kind)
        clear += vector
        masks = [Mask(self_mask_key(secret_of(own + "b"), T1, own, stream))]
        for peer in cohort:
            if peer != own:
                shared = keys[own].exchange(keys[peer].public, peer)
                masks.append(Mask(pair_mask_key(shared, T1, own, peer, stream), subtract=pair_sign(own, peer) < 0))
        before = vector.copy()
        add_masks(vector, masks, prg)
        assert length < 4 or not np.array_equal(vector, before)
        total += vector
    assert length < 4 or not np.array_equal(total, clear)
    add_masks(total, [Mask(self_mask_key(secret_of(n + "b"), T1, n, stream), subtract=True) for n in cohort], prg)
    assert np.array_equal(total, clear)


@given(secret=st.binary(min_size=32, max_size=32), sizes=st.tuples(st.integers(2, 5), st.integers(0, 3)))
@settings(max_examples=25, deadline=None)
def test_any_t_shares_rebuild(secret, sizes):
    threshold, count = sizes[0], sum(sizes)
    shares = dict(enumerate(split_secret(secret, threshold, count), start=1))
    for holders in combinations(shares, threshold):
        assert combine_shares({x: shares[x] for x in holders}, threshold, "a") == secret
        assert inconsistent_shares(shares, holders, threshold, "a") == ()


@given(
    secrets=st.tuples(*[st.binary(min_size=32, max_size=32)] * 2), threshold=st.integers(2, 5), last=st.integers(2, 64)
)
@settings(max_examples=25, deadline=None)
def test_fewer_than_t_shares_fit_any_secret(secrets, threshold, last):
    """With t - 1 shares of one secret, there is one further share that makes them those of any other."""
    held = dict(enumerate(split_secret(secrets[0], threshold, threshold)[:-1], start=1))
    last = max(last, threshold)
    # f(last) = sum over the t points 0 and 1..t-1 of y * prod (last - o) / (x - o)
    points = {0: int.from_bytes(secrets[1], "big"), **{x: int.from_bytes(y, "big") for x, y in held.items()}}
    value = 0
    for x, y in points.items():
        weights = [(last - other) * pow(x - other, -1, PRIME) for other in points if other != x]
        value += y * prod(weights)
    held[last] = (value % PRIME).to_bytes(33, "big")
    assert combine_shares(held, threshold, "a") == secrets[1]


@given(index=st.integers(1, 64), shares=st.tuples(*[st.binary(min_size=33, max_size=33)] * 2), pair=COHORTS)
@settings(max_examples=25, deadline=None)
def test_sealed_shares_open_for_their_receiver(index, shares, pair):
    sender, receiver = pair[:2]
    keys = {name: AgreementKey(secret_of(name)) for name in (sender, receiver)}
    there = share_key(keys[sender].exchange(keys[receiver].public, receiver), T1, sender, receiver)
    here = share_key(keys[receiver].exchange(keys[sender].public, sender), T1, sender, receiver)
    sealed = seal_shares(there, SharePair(index, *shares), transcript=T1, sender=sender, receiver=receiver)
    assert open_shares(here, sealed, transcript=T1, sender=sender, receiver=receiver, index=index) == SharePair(
        index, *shares
    )
