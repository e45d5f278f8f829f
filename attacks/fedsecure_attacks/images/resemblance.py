"""Records that a release holds as they are, or nearly: mirrored, turned, shifted by a pixel, at another brightness or
contrast, too.

This needs nobody who is out, so it is asked of every release, and of all members. It finds; it clears nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsecure_attacks.embedding import column_scales
from fedsecure_attacks.images.copies import looks, nearest, normed
from fedsecure_attacks.records import Images, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Copies", "Flags", "Nearness", "copied", "released_as_they_are"]

Flags = npt.NDArray[np.bool_]
#: How far a value may be off to be the same: standardising and undoing it costs a few units in the last place of a
#: float32 (root mean square; of pixels as they are, of a table's values in standard deviations of their column).
ROUNDING, LAST_PLACES = 1e-5, 4 * float(np.finfo(np.float32).eps)
#: What rounding may cost at most in a column whose values lie far from zero.
MOST_ROUNDING = 1e-2
#: Nearer to a released record than this share of what people are apart, nothing but that record explains it; of records
#: of at least so many values, since in few dimensions any two may be near.
NEAR, VALUES = 0.1, 16
#: The share of people of whom an independent record may come so near to one by chance.
CHANCE = 1e-6
#: Where people are dense, those who are near a released record have to be nearer to it than this share of what their
#: own ``NEIGHBOURS``-th nearest is off.
NEIGHBOURS = 3
#: People compared at a time; those whose distance to others is looked at to learn what people are apart; the most whose
#: own is looked at; and pairs at a time.
BLOCK, SAMPLE, LOOKED, PAIRS = 4096, 500, 2000, 1 << 22


@dataclass(frozen=True, slots=True)
class Copies:
    """People who are in a released set up to rounding (``exact``), and all who are in it as they are or ``nearly``."""

    exact: int
    nearly: int


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a released record comes to a person only as a copy: in values as they are (``plain``), and for images
    without brightness and contrast (``shape``). 0: only when it is the same up to ``rounding`` (root mean square), or
    never. ``shares``: of what a person is apart from others, in both. ``units``: what is taken from a table's columns,
    and what they are divided by."""

    plain: float = 0.0
    shape: float = 0.0
    rounding: float = field(default=ROUNDING, compare=False)
    shares: tuple[float, float] = field(default=(0.0, 0.0), compare=False)
    units: tuple[Floats, Floats] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, people: Labelled) -> Nearness:
        """A share of the median distance between one of ``people`` and the nearest other, the smaller the fewer
        dimensions they spread in."""
        units = _units(people.x) if people.x.ndim == 2 and len(people) else None
        rounding = ROUNDING if units is None else _rounding(people.x, units)
        if len(people) < 3:
            return cls(rounding=rounding, units=units)
        rows = _in_units(people.x, units)
        apart, share = _apart(rows)
        if apart:
            rounding = min(rounding, share * apart / math.sqrt(rows.shape[1]))
        if rows.shape[1] < VALUES:
            return cls(rounding=rounding, units=units)
        between, part = _apart(normed(rows)) if people.x.ndim == 4 else (0.0, 0.0)
        return cls(apart * share, between * part, rounding, (share, part), units)


def copied(released: Labelled, people: Labelled, near: Nearness = Nearness()) -> tuple[Flags, Flags]:
    """Which of ``people`` (n,) are in ``released`` up to rounding, and which are as they are or nearly, whatever their
    labels; of the latter no more than ``LOOKED`` and those who are in it up to rounding."""
    least, shaped = _distances(released, people, near)
    same = least <= near.rounding * math.sqrt(people.rows.shape[1])
    plainly = _apart_from_people(people, near, least, (least <= near.plain) & ~same, near.shares[0])
    alike = _apart_from_people(people, near, shaped, (shaped <= near.shape) & ~same, near.shares[1], shape=True)
    return same, same | plainly | alike


def _distances(released: Labelled, people: Labelled, near: Nearness) -> tuple[Floats, Floats]:
    """Of each person (n,) to the nearest released record under any look, in values and in shape (infinite where neither
    counts, and of what is blank)."""
    least, shaped = np.full(len(people), np.inf), np.full(len(people), np.inf)
    if not len(released):
        return least, shaped
    for at in range(0, len(people), BLOCK):
        part = _in_units(people.x[at : at + BLOCK], near.units)
        alike = normed(part) if near.shape else part
        here = slice(at, at + BLOCK)
        for look in looks(released.x):
            rows = _in_units(look, near.units)
            least[here] = np.minimum(least[here], nearest(part, rows))
            if near.shape:
                shaped[here] = np.minimum(shaped[here], nearest(alike, normed(rows)))
        shaped[here][~alike.any(axis=1)] = np.inf  # what is blank has no shape
    return least, shaped


def _apart_from_people(
    people: Labelled, near: Nearness, distances: Floats, found: Flags, share: float, *, shape: bool = False
) -> Flags:
    """Who of ``found`` (n,) is nearer to a released record than ``share`` of what other people are off."""
    kept, chosen = np.zeros_like(found), np.flatnonzero(found)[:LOOKED]
    if not len(chosen) or share <= 0:
        return kept
    if len(people) < 2:
        return found
    rows = _in_units(people.x, near.units)
    rows = normed(rows) if shape else rows
    off = _nearest_others(rows, chosen, NEIGHBOURS)[:, -1]
    kept[chosen] = distances[chosen] <= share * off
    return kept


def released_as_they_are(released: Labelled, people: Labelled, near: Nearness = Nearness()) -> Copies:
    """How many of ``people`` are in ``released``, whatever their labels."""
    same, nearly = copied(released, people, near)
    return Copies(int(same.sum()), int(nearly.sum()))


def _units(x: Images) -> tuple[Floats, Floats]:
    """Mean of each column (d,), and its standard deviation; of a constant one its size."""
    centre = x.mean(axis=0, dtype=np.float64)
    varies = x.max(axis=0) > x.min(axis=0)
    return centre, np.where(varies, column_scales(x), np.maximum(1.0, np.abs(centre)))


def _in_units(x: Images, units: tuple[Floats, Floats] | None) -> Floats:
    rows = x.reshape(len(x), -1).astype(np.float64)
    return rows if units is None else (rows - units[0]) / units[1]


def _rounding(x: Images, units: tuple[Floats, Floats]) -> float:
    size = np.abs(x).max(axis=0).astype(np.float64) / units[1]
    return min(MOST_ROUNDING, ROUNDING + LAST_PLACES * float(np.sqrt((size**2).mean())))


def _apart(rows: Floats) -> tuple[float, float]:
    """The median distance of some of ``rows`` (n, d), n > 2, to the nearest other that is not the same; and the share
    of it within which only one in a million comes to anybody by chance, at most ``NEAR``: from the dimension in which
    people spread, as the distances to the nearest and to the second tell it (Facco et al. 2017). Zeros when all are
    alike."""
    two = _nearest_others(rows, np.arange(0, len(rows), max(1, len(rows) // SAMPLE)), 2)
    two = two[two[:, 0] > ROUNDING * np.sqrt(rows.shape[1])]
    if not len(two):
        return 0.0, 0.0
    growth = float(np.median(np.log(two[:, 1] / two[:, 0])))  # ln 2 / dimension
    return float(np.median(two[:, 0])), min(NEAR, CHANCE ** (growth / math.log(2)))


def _nearest_others(rows: Floats, chosen: npt.NDArray[np.int64], many: int) -> Floats:
    """Distances of the ``chosen`` (k,) of ``rows`` (n, d) to the ``many`` nearest others, or to as many as there are,
    ascending: (k, many)."""
    many = min(many, len(rows) - 1)
    lengths, found = (rows**2).sum(axis=1), []
    step = max(1, PAIRS // len(rows))
    for at in range(0, len(chosen), step):
        here = chosen[at : at + step]
        squared = lengths[here][:, None] - 2 * rows[here] @ rows.T + lengths
        squared[np.arange(len(here)), here] = np.inf
        found.append(np.sort(np.partition(squared, many - 1, axis=1)[:, :many], axis=1))
    return np.asarray(np.sqrt(np.maximum(np.concatenate(found), 0.0)))
