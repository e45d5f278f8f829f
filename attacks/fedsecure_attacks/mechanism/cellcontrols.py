"""Questions with a known answer, asked of every cell of a mechanism audit: members that are put into a set are found
(*planted*), and of sets made in the same way from other people nothing is told (*null*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedsecure.randomness import numpy_generator
from fedsecure_attacks import controls
from fedsecure_attacks.images.copies import exact_copies
from fedsecure_attacks.mechanism.makers import STRANGER
from fedsecure_attacks.mechanism.scoring import PRIMARY, AnyShadow
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.splits import coin
from fedsecure_attacks.statistics.intervals import auc_interval
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.statistics.tail import tail_test
from fedsecure_attacks.verdict import TAIL_ALPHA, Control

__all__ = ["copies", "null", "planted"]

#: A cell's null control says that something is found with this chance, when nothing is: a sweep has dozens of cells.
ALPHA = 1e-5
#: The attacks that the null is asked with.
ASKED = (PRIMARY, "mean-tracing-references")


def planted(shadow: AnyShadow, pool: Labelled, population: Labelled, seed: int) -> Control:
    """Whether members that are put into ``shadow``'s set are found."""
    seen = Outsider(shadow.released, population, shadow.counts(pool))
    generator = numpy_generator(seed, "planted")
    return controls.planted(seen, Candidates(pool.x, pool.y), shadow.inside, generator)


def null(unseen: Sequence[Mapping[str, Floats]], pool: Labelled, seed: int) -> Control:
    """Whether the records that a fresh coin calls members stand out against sets that were made from others.
    ``unseen``: scores of the pool against each such set."""
    if not unseen:
        return Control("null", True, "not asked: no set was made from other people")
    wrong, said = [], []
    for name in ASKED:
        areas = []
        for number, scores in enumerate(unseen):
            split = Scores.of(scores[name], coin(len(pool), seed, 2 * STRANGER + number))
            interval = auc_interval(split, 1 - ALPHA / (len(ASKED) * len(unseen)))
            areas.append(auc(split))
            if not interval.low <= 0.5 <= interval.high or tail_test(split).p < TAIL_ALPHA * ALPHA:
                wrong.append(name)
        said.append(f"{name} {np.mean(areas):.3f}")
    words = "areas on sets made from other people: " + ", ".join(said)
    if wrong:
        words += "; something is found where nothing is, so the scores tell who is who without a release"
    return Control("null", not wrong, words)


def copies(shadows: Sequence[AnyShadow], pool: Labelled, population: Labelled) -> int:
    """Members that were released bit for bit, over all shadows."""
    candidates = Candidates(pool.x, pool.y)
    return sum(exact_copies(Outsider(s.released, population, {}), candidates) for s in shadows)
