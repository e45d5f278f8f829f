"""A3, the nearest released record (audit page, A3). It finds copies; against what sets condensed from other people
would have shown, which is for the audit of a mechanism to do, also what starts from noise or averages. A small distance
is evidence of a leak, a large one of nothing."""

from __future__ import annotations

import numpy as np

from fedsecure_attacks.embedding import Embedding
from fedsecure_attacks.images.copies import nearest
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["distances", "raw_neighbour"]


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
