"""All evidence of one audit of files, from the scores that its attacks gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsecure_attacks.controls import exact_means_effects
from fedsecure_attacks.evidence.curves import curve, effects_curve, rates
from fedsecure_attacks.evidence.gallery import gallery
from fedsecure_attacks.evidence.identities import Salt
from fedsecure_attacks.evidence.people import Flags, classes_of, copied_people, people_told, worst_of
from fedsecure_attacks.images.exposure import exposure
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.power import people_needed
from fedsecure_attacks.statistics.scores import Floats, Scores
from fedsecure_attacks.verdict import AttackResult, Thresholds, Verdict, Word

__all__ = ["Gathered", "Shown", "facts_alone", "gather"]

CEILING = "exact class means (theory, F5)"


@dataclass(frozen=True, slots=True)
class Shown:
    """What of people a report may show. ``salt``: their ids. ``pictures``: of released records. ``private``: pictures
    of people, too."""

    salt: Salt | None = None
    pictures: bool = False
    private: bool = False


@dataclass(frozen=True, eq=False)
class Gathered:
    """What an audit of files measured. ``members``: all that were given. ``copies``: members released bit for bit, and
    all who are in the set as they are or nearly."""

    released: Labelled
    members: Labelled
    candidates: Candidates
    inside: Flags = field(repr=False)
    scores: Mapping[str, Floats] = field(repr=False)
    results: Sequence[AttackResult]
    frame: Frame
    verdict: Verdict
    primary: str
    copies: tuple[int, int]


def gather(given: Gathered, thresholds: Thresholds, shown: Shown) -> dict[str, Any]:
    """The report's keys beside the verdict: ``surface``, ``people``, ``roc``, ``theory``, ``classes``, ``worst``,
    ``gallery``, and ``needed`` where people were too few. The same arguments give the same values."""
    people = Labelled("candidates", given.candidates.x, given.candidates.y)
    counts = {int(c): int((given.members.y == c).sum()) for c in np.unique(given.members.y)}
    keys = people.fingerprints() if shown.salt else []

    def name(index: int) -> str | None:
        return shown.salt.id(keys[index]) if shown.salt else None

    def size(index: npt.NDArray[np.int64]) -> Floats:
        return exposure(people.take(index), given.frame, counts)

    found: dict[str, Any] = {
        "surface": _surface(given.released),
        "people": people_told(given.results, given.primary, given.copies, len(given.members)),
        "roc": {key: curve(Scores.of(values, given.inside)) for key, values in given.scores.items()},
        "classes": classes_of(given.members, given.released, thresholds.n_min),
        "worst": worst_of(
            given.scores, given.inside, given.candidates.y,
            primary=given.primary, fpr=thresholds.fpr, name=name, size=size,
        ),
        "gallery": gallery(
            given.released, given.candidates, given.inside, name, pictures=shown.pictures, private=shown.private
        ),
    }  # fmt: skip
    if effects := exact_means_effects(given.candidates, given.inside, given.frame):
        found["theory"] = {CEILING: effects_curve(effects, rates(int((~given.inside).sum())))}
    if given.verdict.word is Word.INCONCLUSIVE:
        found |= _needed(thresholds)
    return found


def facts_alone(
    members: Labelled, released: Labelled, thresholds: Thresholds, copies: tuple[int, int]
) -> dict[str, Any]:
    """``surface``, ``people`` and ``classes`` of an audit that could look for copies and for nothing else."""
    return {
        "surface": _surface(released),
        "people": copied_people(copies, len(members)),
        "classes": classes_of(members, released, thresholds.n_min),
    }


def _surface(released: Labelled) -> str:
    return "condensed images" if released.x.ndim == 4 else "condensed records"


def _needed(thresholds: Thresholds, chance: float = 0.8) -> dict[str, Any]:
    try:
        needed = people_needed(thresholds, chance=chance)
    except ValueError:  # no number of people would do
        return {}
    return {"needed": {"members": needed.members, "nonmembers": needed.nonmembers, "chance": chance}}
