"""A3, the nearest released record: raw, and against what sets condensed from other people would have shown (audit page,
A3). Raw finds copies; calibrated finds what starts from noise or averages. A small distance is evidence of a leak, a
large one of nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsecure_attacks.embedding import Embedding
from fedsecure_attacks.images.copies import nearest
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["calibrated_neighbour", "distances", "raw_neighbour"]


def distances(released: Labelled, candidates: Candidates, embedded: Floats, embed: Embedding) -> Floats:
    """To the nearest released record of the same class; of any, for classes of which none was released."""
    others = embed(released.x)
    found = nearest(embedded, others)
    for c in np.unique(released.y).tolist():
        here = candidates.y == c
        if here.any():
            found[here] = nearest(embedded[here], others[released.y == c])
    return found


def raw_neighbour(seen: Outsider, candidates: Candidates, embed: Embedding) -> Floats:
    """Minus the distance (n,) in ``embed``'s space."""
    return -distances(seen.released, candidates, embed(candidates.x), embed)


def calibrated_neighbour(
    seen: Outsider, candidates: Candidates, embed: Embedding, references: Sequence[Labelled]
) -> Floats:
    """The same, standardised by the distances of each candidate to ``references``, sets condensed without it (n,).
    Raises ``ValueError`` with fewer than four of them."""
    if len(references) < 4:
        raise ValueError(f"{len(references)} reference sets (at least 4 are needed)")
    embedded = embed(candidates.x)
    known = np.stack([distances(other, candidates, embedded, embed) for other in references])  # (R, n)
    spread = known.std(axis=0)
    floor = float(np.median(spread)) * 1e-3 + 1e-12
    mean = known.mean(axis=0)
    return np.asarray((mean - distances(seen.released, candidates, embedded, embed)) / np.maximum(spread, floor))
