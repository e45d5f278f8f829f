"""What the sums of two cohorts that share nodes can differ by: counted against every choice of survivors."""

from __future__ import annotations

from itertools import chain, combinations

import pytest

from fedsecure.crypto.signatures import ephemeral_identity
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.cohort.overlap import fewest_apart, overlap_warnings

KEYS = {name: ephemeral_identity().public_bytes for name in "abcdefgh"}


def cohort_of(nodes, name="one"):
    return CohortManifest.form("heart-study", name, 1, {node: KEYS[node] for node in nodes})


def sums_of(manifest):
    """Every set of nodes that a sum of the cohort can be over."""
    nodes = [m.node for m in manifest.nodes]
    sizes = range(manifest.threshold.required, len(nodes) + 1)
    return [frozenset(found) for found in chain.from_iterable(combinations(nodes, size) for size in sizes)]


PAIRS = ["abc abd", "abc ade", "abc abcd", "abcd abce", "abcd abef", "abcde abcdf", "abcde adefg", "abcde aefgh"]


@pytest.mark.parametrize("pair", [*PAIRS, "abcd aefg", "abcdef abcdgh", "abcdefgh abc", "abcdefg abcdefgh"])
def test_the_fewest_nodes_that_two_sums_differ_by(pair):
    one, other = (cohort_of(nodes, f"c{at}") for at, nodes in enumerate(pair.split()))
    apart = {len(a ^ b) for a in sums_of(one) for b in sums_of(other)} - {0}
    assert fewest_apart(one, other) == fewest_apart(other, one) == min(apart)


def test_a_person_is_warned_of_cohorts_whose_sums_differ_by_few():
    manifest = cohort_of("abcd", "cardiology")
    (line,) = overlap_warnings(manifest, [manifest, cohort_of("abce", "radiology"), cohort_of("aefgh", "surgery")])
    assert line == (
        "cohort cardiology shares 3 nodes with cohort radiology, which is trusted here, too: two sums of the same work "
        "can differ by 1 node alone, where 3 are to hide each other; let no work be done under both"
    )


def test_cohorts_whose_sums_differ_by_enough_and_a_newer_version_are_no_matter():
    assert overlap_warnings(cohort_of("abc"), [cohort_of("ade", "two")]) == []
    assert overlap_warnings(cohort_of("abcd"), [cohort_of("abc", "one")]) == []
