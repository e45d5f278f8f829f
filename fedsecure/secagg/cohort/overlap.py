"""What two cohorts that share nodes let a coordinator see: the difference of two sums, one of each, over the same work.

Nodes that are in both sums cancel in it, if they contribute the same to both. What is left is about those that are in
one sum alone, and they hide each other only if they are as many as a sum needs.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.text import counted

__all__ = ["fewest_apart", "overlap_warnings"]


def fewest_apart(one: CohortManifest, other: CohortManifest) -> int:
    """The fewest nodes, at least 1, that a sum of ``one`` and a different sum of ``other`` can differ by: the
    coordinator chooses whom it drops, as far as each sum has its threshold of nodes."""
    common = len({m.node for m in one.nodes} & {m.node for m in other.nodes})
    return max(1, sum(max(0, cohort.threshold.required - common) for cohort in (one, other)))


def overlap_warnings(manifest: CohortManifest, trusted: Iterable[CohortManifest]) -> list[str]:
    """For people, of each cohort of another name in ``trusted`` whose sums can differ from those of ``manifest`` by
    fewer nodes than either needs."""
    found = []
    for other in trusted:
        least = min(manifest.threshold.required, other.threshold.required)
        apart = fewest_apart(manifest, other)
        if other.cohort == manifest.cohort or apart >= least:
            continue
        shared = len({m.node for m in manifest.nodes} & {m.node for m in other.nodes})
        found.append(
            f"cohort {manifest.cohort} shares {counted(shared, 'node')} with cohort {other.cohort}, which is trusted "
            f"here, too: two sums of the same work can differ by {counted(apart, 'node')} alone, where {least} are to "
            "hide each other; let no work be done under both"
        )
    return found
