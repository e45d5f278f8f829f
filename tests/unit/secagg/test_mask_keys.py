"""Every keystream key of a run is used for one mask: collected where they are derived and where they are used."""

from __future__ import annotations

from collections import defaultdict

import pytest
from rehearsal import Rehearsal, run

from fedsecure.crypto import keyschedule, keystream
from fedsecure.secagg.machines import masking, unmasking, vectors


@pytest.fixture
def collected(monkeypatch):
    """(what a key is for) -> keys, and the keys that masked something."""
    derived, used = defaultdict(set), []

    def pair(shared, transcript, one, other, stream):
        key = keyschedule.pair_mask_key(shared, transcript, one, other, stream)
        derived["pair", transcript, *sorted((one, other)), stream].add(bytes(key))
        return key

    def own(seed, transcript, owner, stream):
        key = keyschedule.self_mask_key(seed, transcript, owner, stream)
        derived["self", transcript, owner, stream].add(bytes(key))
        return key

    def add(vector, masks, prg=keystream.Prg.AES_256_CTR, *, threads=1):
        used.extend(bytes(mask.key) for mask in masks)
        keystream.add_masks(vector, masks, prg, threads=threads)

    monkeypatch.setattr(masking, "pair_mask_key", pair)
    monkeypatch.setattr(masking, "self_mask_key", own)
    monkeypatch.setattr(vectors, "add_masks", add)
    monkeypatch.setattr(unmasking, "add_masks", add)
    return derived, used


def test_all_keys_of_a_run_are_distinct(collected):
    """Three rounds, each with an attempt that fails late and one that does not, three streams, somebody missing."""
    derived, used = collected
    rehearsal = Rehearsal(5)
    for round_ in range(3):
        rehearsal.round = round_
        for attempt, vanish in enumerate(({"n00": 3, "n01": 3}, {"n04": 2})):
            coordinator = rehearsal.coordinator(rehearsal.config(attempt=attempt))
            run(coordinator, rehearsal.nodes(), vanish)
            assert coordinator.done
            assert (coordinator.failure is None) == (attempt == 1)
    sessions, streams, pairs, nodes = 6, 3, 10, 5
    assert len(derived) == sessions * streams * (pairs + nodes) - 3 * streams, "n04 vanishes unmasked in three sessions"
    assert all(len(keys) == 1 for keys in derived.values()), "both ends of a pair, and the coordinator, derive one key"
    keys = [key for found in derived.values() for key in found]
    assert len(set(keys)) == len(keys), "no key is that of two masks"
    assert set(used) == set(keys), "nothing else masks, and nothing is derived in vain"


def test_one_mask_of_a_session_is_used_by_those_who_share_it_and_nobody_else(collected):
    """In a session without drop-outs: a pair mask by its two nodes, a self mask by its node and the coordinator."""
    derived, used = collected
    rehearsal = Rehearsal(4)
    coordinator = rehearsal.coordinator()
    run(coordinator, rehearsal.nodes())
    assert coordinator.outcome.survivors == rehearsal.names
    assert {used.count(key) for keys in derived.values() for key in keys} == {2}


def test_the_memory_of_masks_is_overwritten(collected, monkeypatch):
    kept = []

    def keep(vector, masks, prg=keystream.Prg.AES_256_CTR, *, threads=1):
        kept.extend(mask.key for mask in masks)
        keystream.add_masks(vector, masks, prg, threads=threads)

    monkeypatch.setattr(vectors, "add_masks", keep)
    monkeypatch.setattr(unmasking, "add_masks", keep)
    rehearsal = Rehearsal(3)
    coordinator = rehearsal.coordinator()
    run(coordinator, rehearsal.nodes())
    assert coordinator.failure is None
    assert len(kept) == 3 * 3 * 3 + 3 * 3
    assert not any(any(key) for key in kept)
