"""Whether a released table is on the scale of the records that it is compared with. Standardised columns beside columns
in their own units, or pixels of 0 to 255 beside 0 to 1, make every distance meaningless, and hide every leak.

Averages spread less than people do, and stay where their classes are: so a column is judged by where it lies, and by
its spread only where that is far larger.
"""

from __future__ import annotations

import math

import numpy as np

from fedsecure.errors import AuditError
from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["require_one_scale"]

#: How far the mean of a released column may lie outside the means of classes, in standard deviations of people, for an
#: unlimited number of released records and more for each record fewer; and how many times it may spread as much.
FAR, WIDE = 3.0, 10.0
#: The share of columns that has to be off, and the released records that a spread can be told from.
SHARE, LEAST = 0.25, 5
#: Off by so much, a set that lies where people do once another scale is undone is on that scale.
OFF, EXPLAINED, FACTOR = 1.0, 0.2, 20.0


def require_one_scale(released: Labelled, people: Labelled) -> None:
    """Raise ``AuditError`` where columns of ``released`` and of ``people`` have plainly different scales. Of images,
    which are in [0, 1], nothing is asked."""
    if released.x.ndim != 2 or not len(released) or not len(people):
        return
    theirs, own = pixels(people.x), pixels(released.x)
    spread = theirs.std(axis=0)
    varies = spread > 0
    if not varies.any():
        return
    theirs, own, spread = theirs[:, varies], own[:, varies], spread[varies]
    means = np.stack([theirs[people.y == c].mean(axis=0) for c in np.unique(people.y)])
    low, high, at = means.min(axis=0), means.max(axis=0), own.mean(axis=0)
    slack = FAR / math.sqrt(len(own))
    apart = _outside(at, low, high) / spread
    far = apart > FAR + slack
    wide = (own.std(axis=0) > WIDE * spread) & (len(own) >= LEAST)
    if (off := int((far | wide).sum())) >= SHARE * len(spread):
        raise _other(f"{off} of {len(spread)} columns lie or spread far from where people do")
    middle = float(np.median(apart))
    if middle <= OFF + slack:
        return
    centre = theirs.mean(axis=0)
    standardised = np.median(_outside(at, (low - centre) / spread, (high - centre) / spread))
    if standardised <= EXPLAINED * middle:
        raise _other("its columns lie where they would if standardised")
    factor = float((at * (low + high) / 2 / spread**2).sum() / max(float(((at / spread) ** 2).sum()), 1e-300))
    if not 1 / FACTOR < factor < FACTOR and factor > 0:
        scaled = np.median(_outside(at * factor, low, high) / spread)
        if scaled <= EXPLAINED * middle:
            raise _other(f"its columns lie where people do once they are multiplied by {factor:.2g}")


def _outside(at: Floats, low: Floats, high: Floats) -> Floats:
    return np.maximum(0.0, np.maximum(low - at, at - high))


def _other(why: str) -> AuditError:
    return AuditError(
        f"released and members are not on one scale: of the released set, {why}; give both on the same",
        hint="undo the standardisation of what was released: x * std + mean",
    )
