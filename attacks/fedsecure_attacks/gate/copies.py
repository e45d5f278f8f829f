"""Records that a release holds as they are, or nearly: mirrored, turned, shifted by a pixel, at another brightness or
contrast, too.

This needs nobody who is out, so it is asked of every release, and of all members. It finds; it clears nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsecure_attacks.images.copies import looks, nearest, normed
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Copies", "Nearness", "released_as_they_are"]

#: How far a value may be off to be the same: standardising and undoing it costs a few units in the last place of a
#: float32 (root mean square, in the records' own units).
ROUNDING = 1e-5
#: Nearer to a released record than this share of what people are apart, nothing but that record explains it; of records
#: of at least so many values, since in few dimensions any two may be near.
NEAR, VALUES = 0.1, 16
#: People compared at a time, and those whose distance to the nearest other is looked at.
BLOCK, SAMPLE = 4096, 500


@dataclass(frozen=True, slots=True)
class Copies:
    """People who are in a released set up to rounding (``exact``), and all who are in it as they are or ``nearly``."""

    exact: int
    nearly: int


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a released record comes to a person only as a copy: in values as they are (``plain``), and for images
    without brightness and contrast (``shape``). 0: only when it is the same up to rounding, or never."""

    plain: float = 0.0
    shape: float = 0.0

    @classmethod
    def of(cls, people: Labelled) -> Nearness:
        """A share of the median distance between one of ``people`` and the nearest other."""
        rows = people.rows.astype(np.float64)
        if rows.shape[1] < VALUES or len(rows) < 2:
            return cls()
        shape = _apart(normed(rows)) if people.x.ndim == 4 else 0.0
        return cls(NEAR * _apart(rows), NEAR * shape)


def released_as_they_are(released: Labelled, people: Labelled, near: Nearness = Nearness()) -> Copies:
    """How many of ``people`` are in ``released``, whatever their labels."""
    if not len(released) or not len(people):
        return Copies(0, 0)
    looked = [look.reshape(len(look), -1).astype(np.float64) for look in looks(released.x)]
    shapes = [normed(look) for look in looked] if near.shape else []
    exact, nearly, rows = 0, 0, people.rows
    for at in range(0, len(rows), BLOCK):
        part = rows[at : at + BLOCK].astype(np.float64)
        rounding = ROUNDING * np.sqrt(part.shape[1])
        least = _least(part, looked)
        found = least <= max(near.plain, rounding)
        if shapes:
            alike = normed(part)
            found |= (_least(alike, shapes) <= near.shape) & (alike != 0).any(axis=1)  # what is blank has no shape
        exact += int((least <= rounding).sum())
        nearly += int(found.sum())
    return Copies(exact, nearly)


def _least(rows: Floats, looked: list[Floats]) -> Floats:
    return np.asarray(np.min([nearest(rows, look) for look in looked], axis=0))


def _apart(rows: Floats) -> float:
    """The median distance of some of ``rows`` (n, d) to the nearest other."""
    found = []
    for index in range(0, len(rows), max(1, len(rows) // SAMPLE)):
        apart = ((rows - rows[index]) ** 2).sum(axis=1)
        apart[index] = np.inf
        found.append(apart.min())
    return float(np.sqrt(np.median(found)))
