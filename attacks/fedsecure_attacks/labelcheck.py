"""Whether the labels of a released set fit the references. Attacks compare people with what was released of their
class: labels that are exchanged hide every leak.

Released records are given the class whose mean is nearest, whitened. Said only where the same rule knows the labels of
references themselves, and only of labels that fit less often than shuffled ones would, or that fit well once classes
are renamed: a set that resembles nobody is no error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom

from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.records import Labelled, Labels
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["about_labels"]

#: How much better than by shuffled labels references have to be known, as a share of what there is to gain.
KNOWN, KNOWN_ALPHA = 0.3, 1e-3
#: Below this chance, labels fit too seldom for shuffled ones.
ALPHA = 0.01
#: Of the rate of references, what renamed classes have to reach; classes for which that is tried; and shuffles.
RENAMED, MOST_CLASSES, SHUFFLES = 0.9, 200, 200


def about_labels(released: Labelled, frames: Sequence[Frame], generator: np.random.Generator) -> list[str]:
    """Doubts: at most one. The frame that knows its own references best is asked."""
    asked = [(found, frame) for frame in frames if (found := _known(frame)) is not None]
    if not asked:
        return []
    rate, frame = max(asked, key=lambda each: each[0])
    here = np.isin(released.y, list(frame.means))
    y = released.y[here]
    if not len(y):
        return []
    said = _nearest(frame, frame.embed(released.x[here]))
    fits, shuffled = int((said == y).sum()), _by_chance(y, said)
    words = f"the labels of the released set do not fit the references: {fits} of {len(y)} are of the nearest class"
    if binom.cdf(fits, len(y), shuffled) < ALPHA:
        return [f"{words}, shuffled labels would give {math.ceil(shuffled * len(y))}"]
    table = _table(y, said)
    best = _renamed(table)
    if len(table) <= MOST_CLASSES and best >= RENAMED * rate * len(y) and 2 * fits <= best:
        shuffles = [_renamed(_table(generator.permutation(y), said)) for _ in range(SHUFFLES)]
        if np.mean(np.array(shuffles) >= best) < ALPHA:
            return [f"{words}, and {best} once classes are renamed"]
    return []


def _known(frame: Frame) -> float | None:
    """The share of held-out references whose label the rule knows; None where that is not much."""
    rows = {c: z for c, z in frame.held_out.items() if len(z)}
    if len(rows) < 2:
        return None
    y = np.concatenate([np.full(len(z), c, np.int64) for c, z in rows.items()])
    said = _nearest(frame, np.concatenate([z + frame.means[c] for c, z in rows.items()]))
    fits, chance = int((said == y).sum()), _by_chance(y, said)
    rate = fits / len(y)
    if chance >= 1 or binom.sf(fits - 1, len(y), chance) > KNOWN_ALPHA or (rate - chance) / (1 - chance) < KNOWN:
        return None
    return rate


def _nearest(frame: Frame, embedded: Floats) -> Labels:
    """The class whose mean is nearest to each of ``embedded`` (n, D), whitened."""
    classes = np.array(sorted(frame.means), np.int64)
    means = np.stack([frame.means[c] for c in classes.tolist()])
    white = frame.whitener.apply(means)  # (C, D)
    return np.asarray(classes[((white * means).sum(axis=1) - 2 * embedded @ white.T).argmin(axis=1)])


def _by_chance(y: Labels, said: Labels) -> float:
    """The share that shuffled labels would fit."""
    return float(sum((y == c).mean() * (said == c).mean() for c in np.unique(y).tolist()))


def _table(y: Labels, said: Labels) -> Floats:
    classes = np.unique(np.concatenate([y, said]))
    found = np.zeros((len(classes), len(classes)))
    np.add.at(found, (np.searchsorted(classes, y), np.searchsorted(classes, said)), 1)
    return found


def _renamed(table: Floats) -> int:
    """The most labels that fit under any renaming of classes, one to one."""
    rows, columns = linear_sum_assignment(-table)
    return int(table[rows, columns].sum())
