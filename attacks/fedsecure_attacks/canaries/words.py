"""What the readings of canaries mean, in controls and in words."""

from __future__ import annotations

import math

from fedsecure.plan import Plan
from fedsecure_attacks.canaries.reading import Reading
from fedsecure_attacks.canaries.results import ERRORS, SLACK, ViewResult
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import Control

__all__ = ["all_fits", "contradictions", "controls", "doubts", "notes"]


def controls(reading: Reading, view: ViewResult) -> list[Control]:
    """That canaries which are in are found, and that those which are out are not."""
    out: Floats = reading.seen.outputs[~reading.inside]
    error = float(out.std(ddof=1)) / math.sqrt(len(out))
    allowed = max(ERRORS * error, SLACK * float(reading.own.max(initial=0.0)))
    off = abs(float(out.mean()))
    near = abs(view.arrived - 1) <= max(ERRORS * view.arrived_error, 10 * SLACK)
    return [
        Control(
            f"planted, {view.view}",
            near,
            f"canaries arrive with {view.arrived:.3f} of what was put in (standard error {view.arrived_error:.3f})",
        ),
        Control(
            f"blind, {view.view}",
            off <= allowed,
            f"canaries that were left out: mean {off / (error or 1.0):.2f} standard errors from nothing",
        ),
    ]


def contradictions(view: ViewResult) -> list[str]:
    """In what the view shows more than was accounted."""
    found, worst = [], view.against.worst
    where = {"node": "in the node's update", "sum": "in the sum"}[view.view]
    if worst.contradicts:
        found.append(
            f"{where} epsilon is at least {worst.lower:.3g} at delta {worst.delta:.2g}, where {worst.accounted:.3g} "
            "was accounted"
        )
    if view.noise_most < 1 - SLACK:
        found.append(
            f"{where} there is {view.noise:.3g} of the noise that was accounted (at most {view.noise_most:.3g})"
        )
    if view.view == "node" and view.clip > 1 + SLACK:
        found.append(f"one record counts for {view.clip:.3g} times the clip norm")
    return found


def doubts(view: ViewResult) -> list[str]:
    """Why nothing can be said of where canaries arrive in this view."""
    if view.arrived_error * ERRORS > 1:
        return [f"{view.view}: the canaries are too few to be found (standard error {view.arrived_error:.2f} of one)"]
    return []


def all_fits(views: tuple[ViewResult, ...], delta: float) -> str:
    """What is said where nothing is wrong."""
    parts = []
    for view in views:
        pair = next(p for p in view.against.pairs if p.delta == delta)
        low, high = view.noise_interval.low, view.noise_interval.high
        parts.append(
            f"{view.view}: epsilon at least {pair.lower:.3g} of {pair.accounted:.3g} accounted at delta {delta:.2g} "
            f"(so many canaries show at most {pair.largest:.3g}), noise {low:.2f} to {high:.2f} of what was accounted"
        )
    return "nothing contradicts the accounting; " + "; ".join(parts)


def notes(plan: Plan, views: tuple[ViewResult, ...], shared: float | None) -> tuple[str, ...]:
    """What a reader should know. ``shared``: noise that nodes share, over what was accounted."""
    found = [
        "canaries stand among the gradients of one node's records; noise and batches come from the operating system, "
        "so two runs differ"
    ]
    if not any(view.against.can_tell for view in views):
        found.append(
            "so many canaries cannot contradict the accounted epsilon: what tells is noise and clip as measured"
        )
    if plan.secagg != "required":
        found.append("sums of this plan are not masked: the coordinator has every node's update")
    if shared is not None:
        found.append(f"noise that nodes share: {shared:.2f} of what was accounted; with all nodes there, 1 and more")
    return tuple(found)
