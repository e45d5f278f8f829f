"""Every drop-out pattern of ten nodes that ends in a sum, 16 176 sessions, and one of each class of the others.

At most N - t = 3 nodes may vanish before a sum, each at one of five stages: C(10, k) · 5^k sessions with k of them. The
others, 1.9 million, end with too few nodes in some leg; nothing is unmasked, and which nodes are left decides nothing
any more. They fall into 962 classes by how many nodes vanish at each stage up to the one that fails and, of those in
leg 2, how many break off in mid-upload. One session of each class is run, with nodes drawn by its number.

As a rule a sample is run. FEDSECURE_EXHAUSTIVE=1 runs all (``make test-exhaustive``: 15 minutes of CPU).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations, product
from math import comb

import numpy as np
import pytest
from dropout_tree import in_order, walked
from rehearsal import STREAMS, Rehearsal, breaks_off, check_dropouts, expected_end

EXHAUSTIVE = os.environ.get("FEDSECURE_EXHAUSTIVE") == "1"
#: Of the sample: every how manyth session is run, with a sum and without.
STEP, FAILED_STEP = 211, 1 if EXHAUSTIVE else 29
LEGS = range(5)
#: How many nodes vanish before leg 0 and before leg 1, in a part of all sessions with a sum; the largest first.
PARTS = ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (0, 3), (3, 0))

#: A class of sessions that fail: of each leg up to the failing one, how many nodes vanish before they send anything
#: and, in leg 2 alone, how many break off in mid-upload.
FailedClass = tuple[tuple[int, int], ...]


def summed_patterns(names: tuple[str, ...], threshold: int) -> Iterator[dict[str, int]]:
    """Who vanishes at which stage, for every session that ends in a sum: first who, then when."""
    for count in range(len(names) - threshold + 1):
        for gone in combinations(names, count):
            for stages in product(LEGS, repeat=count):
                yield dict(zip(gone, stages, strict=True))


def failed_classes(names: tuple[str, ...], threshold: int) -> list[FailedClass]:
    """Every class of sessions that fail, in order."""
    breaking = sum(breaks_off(name) for name in names)
    nodes, others = len(names), len(names) - breaking

    def grow(before: FailedClass) -> Iterator[FailedClass]:
        gone = sum(map(sum, before))
        for vanish in range(nodes - gone + 1):
            for broken in range(vanish + 1) if len(before) == 2 else (0,):
                if broken > breaking or (len(before) == 2 and vanish - broken > others):
                    continue
                found = (*before, (vanish - broken, broken))
                if nodes - gone - vanish < threshold:
                    yield found
                elif len(found) < len(LEGS):
                    yield from grow(found)

    return sorted(grow(()))


def class_of(names: tuple[str, ...], vanish: dict[str, int], failing: int) -> FailedClass:
    """The class of a session that fails in leg ``failing``."""
    found = []
    for leg in range(failing + 1):
        gone = [name for name in names if vanish.get(name) == leg]
        broken = sum(breaks_off(name) for name in gone) if leg == 2 else 0
        found.append((len(gone) - broken, broken))
    return tuple(found)


def drawn(names: tuple[str, ...], of: FailedClass, seed: int) -> dict[str, int]:
    """A session of this class; ``seed`` draws who vanishes."""
    left = np.random.default_rng(seed).permutation(names).tolist()
    found: dict[str, int] = {}
    for leg in sorted(range(len(of)), key=lambda leg: leg != 2):  # leg 2 first: it asks for nodes of two kinds
        silent, broken = of[leg]
        kinds = ((False, silent), (True, broken)) if leg == 2 else ((None, silent),)
        for kind, count in kinds:
            chosen = [name for name in left if kind is None or breaks_off(name) is kind][:count]
            found |= dict.fromkeys(chosen, leg)
            left = [name for name in left if name not in chosen]
    return found


def test_every_pattern_that_ends_in_a_sum_is_there():
    names = Rehearsal(10).names
    found = list(summed_patterns(names, 7))
    assert len(found) == sum(comb(10, k) * 5**k for k in range(4)) == 16_176
    assert len({tuple(sorted(vanish.items())) for vanish in found}) == len(found)
    assert all(expected_end(names, vanish, 7)[0] is None for vanish in found)


@pytest.mark.parametrize(("count", "threshold"), [(3, 3), (4, 3), (5, 4), (6, 5)])
def test_patterns_and_classes_are_those_of_all_stages_of_all_nodes(count, threshold):
    """With few nodes 6^N sessions can be walked: the short ways find the same."""
    names, summed, classes = Rehearsal(10).names[:count], set(), set()
    for stages in product(range(6), repeat=count):
        vanish = {name: stage for name, stage in zip(names, stages, strict=True) if stage in LEGS}
        failing, _ = expected_end(names, vanish, threshold)
        if failing is None:
            summed.add(tuple(sorted(vanish.items())))
        else:
            classes.add(class_of(names, vanish, failing))
    assert {tuple(sorted(v.items())) for v in summed_patterns(names, threshold)} == summed
    assert failed_classes(names, threshold) == sorted(classes)


def test_a_session_is_drawn_for_every_class():
    names = Rehearsal(10).names
    for seed, of in enumerate(failed_classes(names, 7)):
        assert class_of(names, drawn(names, of, seed), len(of) - 1) == of
        assert expected_end(names, drawn(names, of, seed), 7)[0] == len(of) - 1


@pytest.mark.parametrize("part", range(4))
@pytest.mark.skipif(EXHAUSTIVE, reason="all of them are run")
def test_sampled_patterns_of_ten_that_end_in_a_sum(part):
    rehearsal = Rehearsal(10, seed=part, streams=STREAMS[:2])
    for vanish in list(summed_patterns(rehearsal.names, rehearsal.threshold))[::STEP][part::4]:
        check_dropouts(rehearsal, vanish)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.timeout(3600 if EXHAUSTIVE else 300)
def test_classes_of_ten_that_end_without_one(part):
    rehearsal = Rehearsal(10, seed=part, streams=STREAMS[:2])
    classes = failed_classes(rehearsal.names, rehearsal.threshold)
    for number in range(0, len(classes), FAILED_STEP)[part::4]:
        check_dropouts(rehearsal, drawn(rehearsal.names, classes[number], number))


def test_the_tree_of_four_has_every_session_once(tmp_path):
    names = Rehearsal(10).names[:4]
    assert in_order(walked(tmp_path / "found", 4, 4, "any", "any")) == in_order(summed_patterns(names, 3))


@pytest.mark.skipif(not EXHAUSTIVE, reason="FEDSECURE_EXHAUSTIVE=1 runs all")
@pytest.mark.parametrize("away", PARTS, ids=str)
@pytest.mark.timeout(3600)
def test_every_pattern_of_ten_that_ends_in_a_sum(away, tmp_path):
    due = [
        vanish
        for vanish in summed_patterns(Rehearsal(10).names, 7)
        if tuple(sum(stage == leg for stage in vanish.values()) for leg in (0, 1)) == away
    ]
    assert in_order(walked(tmp_path / "found", sum(away), 10, *away)) == in_order(due)


def test_the_parts_are_all_of_them():
    due = {
        tuple(sum(stage == leg for stage in vanish.values()) for leg in (0, 1))
        for vanish in summed_patterns(Rehearsal(10).names, 7)
    }
    assert sorted(PARTS) == sorted(due)
