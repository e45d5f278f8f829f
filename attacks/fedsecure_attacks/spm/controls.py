"""Questions with a known answer, asked in every audit of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedsecure_attacks.mechanism.scoring import Scored
from fedsecure_attacks.spm.scoring import PLAIN, Measured
from fedsecure_attacks.spm.tracing import area_of
from fedsecure_attacks.statistics.intervals import cluster_interval
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.verdict import Control

__all__ = ["controls_of"]

#: How far theory may be off where people are few, and how sure a null must be.
TOLERANCE, SURE = 0.06, 0.9999


def controls_of(measured: Measured, scored: Sequence[Scored]) -> tuple[Control, ...]:
    """*planted*, *null* and *oracle*."""
    return _planted(measured), _null(measured, scored), _oracle(measured, scored)


def _planted(measured: Measured) -> Control:
    found, of = measured.planted
    people = "member" if of == 1 else "members"
    said = f"the mean gradient of {of} {people}, released alone: {found} of them rank above every non-member"
    return Control("planted", 0 < of == found, said)


def _null(measured: Measured, scored: Sequence[Scored]) -> Control:
    """Attacks that know of no other run, against who was in another run: of that nothing can be told."""
    wrong, said = [], []
    for name in PLAIN:
        if name not in measured.plain[0]:
            continue
        areas = [
            auc(Scores.of(plain[name], scored[(number + 1) % len(scored)].inside))
            for number, plain in enumerate(measured.plain)
        ]
        interval = cluster_interval(areas, SURE)
        said.append(f"{name} {np.mean(areas):.3f}")
        if interval is not None and not interval.low <= 0.5 <= interval.high:
            wrong.append(name)
    words = "areas against the members of another run: " + ", ".join(said)
    if wrong:
        words += "; something is told where nothing can be"
    return Control("null", not wrong, words)


def _oracle(measured: Measured, scored: Sequence[Scored]) -> Control:
    """Whether exact mean gradients are attacked as well as theory says (F1)."""
    if not measured.exact:
        return Control("oracle", True, "not asked: too few members, or people who are out")
    areas = [auc(Scores.of(s, one.inside)) for (s, _), one in zip(measured.exact, scored, strict=True)]
    value, theory = float(np.mean(areas)), float(np.mean([area_of(effect) for _, effect in measured.exact]))
    error = float(np.std(areas, ddof=1)) / math.sqrt(len(areas)) if len(areas) > 1 else 0.0
    said = f"exact mean gradients: area {value:.3f}, theory (F1) {theory:.3f}"
    return Control("oracle", abs(value - theory) <= max(4 * error, TOLERANCE), said)
