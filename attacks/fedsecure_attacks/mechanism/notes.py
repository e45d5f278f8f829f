"""What the report of ``audit mechanism`` notes beside its figures."""

from __future__ import annotations

from collections.abc import Sequence

from fedsecure_attacks.mechanism.grid import left_out
from fedsecure_attacks.mechanism.noisy import accounted_epsilon
from fedsecure_attacks.mechanism.results import CellResult
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.sweep import Finished
from fedsecure_attacks.mechanism.sweepfile import CURVES, SweepSettings

__all__ = ["notes_of"]


def notes_of(sweep: SweepSettings, cells: Sequence[Finished], ceiling: CellResult) -> list[str]:
    """A line each: what was left out, how residuals were matched, what is accounted, how large the networks are.
    ``ceiling``: the cell of exact class means."""
    if sweep.fast:
        return ["nothing was condensed: exact class means are the ceiling of what tracing means can tell of any set"]
    notes = left_out(sweep)
    notes += _about_residual(sweep, cells)
    notes += _guarantees(sweep, cells, ceiling)
    notes.append(f"the audit's networks are {sweep.condensation.width} wide and sets take {sweep.condensation.steps} "
                 "steps: what is deployed may be larger")  # fmt: skip
    return notes


def _about_residual(sweep: SweepSettings, cells: Sequence[Finished]) -> list[str]:
    matched = [one for one in cells if one.cell.curve == CURVES[1]]
    if not matched:
        return []
    if sweep.federated is not None:
        return [
            "matched residual: as many steps (by factors of two) as the first run needs to come to the median of what "
            "cells come to as deployed; the residual of each says how well that went"
        ]
    level = matched[0].cell.setting.residual
    missed = sum(one.result.residual > level for one in matched)
    return [
        f"matched residual: every set is condensed until its squared distance is at most {level:g}, or for eight times "
        "the steps" + (f"; {missed} of {len(matched)} cells end above it" if missed else "")
    ]


def _guarantees(sweep: SweepSettings, cells: Sequence[Finished], ceiling: CellResult) -> list[str]:
    members, said = max(1, round(ceiling.members / sweep.shadows)), {}
    for one in cells:
        setting = one.cell.setting
        if setting.sigma and isinstance(setting, Setting) and setting.init == "noise":
            epsilon, delta = accounted_epsilon(setting, members)
            said[setting.sigma] = f"sigma {setting.sigma:g} is accounted as epsilon {epsilon:.2f} at delta {delta:.1e}"
    return [said[sigma] for sigma in sorted(said)]
