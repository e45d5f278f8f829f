"""``audit plan``: what a sweep takes and what it could say, before it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.images.trained import margins, train_on
from fedsecure_attacks.mechanism.audit import frames_of
from fedsecure_attacks.mechanism.cache import ShadowCache
from fedsecure_attacks.mechanism.cells import CellStore, cell_key
from fedsecure_attacks.mechanism.command import people_of
from fedsecure_attacks.mechanism.costs import LONGER
from fedsecure_attacks.mechanism.grid import Cell, deployed_cells, left_out
from fedsecure_attacks.mechanism.makers import AnySetting, Shadows
from fedsecure_attacks.mechanism.people import People
from fedsecure_attacks.mechanism.reporting import plan_of, thresholds_of
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.sweepfile import CURVES, SweepSettings
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates
from fedsecure_attacks.statistics.epsilon import largest_certifiable
from fedsecure_attacks.statistics.power import chance_to_clear, people_needed, planted_needed, power_of, visible_effect
from fedsecure_attacks.statistics.theory import auc_of

__all__ = ["CHANCE", "plan_sweep"]

#: Chance of what is promised, and the effect whose chance is told.
CHANCE, EFFECT = 0.8, 0.5
#: All attacks on a set take so many times what mean-tracing does, models aside.
LIKE_IT = 5.0
#: Areas and tails of one cell: attacks on a mechanism.
ATTACKS = 9


def plan_sweep(sweep: SweepSettings, cache: Path | None, jobs: int) -> dict[str, Any]:
    """The plan as JSON. ``cache``: a folder in which cells may lie already. Raises ``AuditError``, ``DataError``."""
    people = people_of(sweep)
    cells = [] if sweep.fast else deployed_cells(sweep)
    matched = [c for c in cells if not c.setting.sigma] if CURVES[1] in sweep.grid.curves else []
    known = [c for c in cells if _is_known(c, people, sweep, cache)]
    seconds = _seconds(sweep, people, [c for c in cells if c not in known], matched)
    n1 = len(people.pool) // 2 * sweep.shadows
    return {
        "plan": plan_of(sweep),
        "inputs_sha256": people.digests,
        "cells": max(1, len(cells) + len(matched)),
        "cells_in_the_cache": len(known),
        "shadows": (len(cells) + len(matched)) * sweep.shadows,
        "sets_of_others": (len(cells) + len(matched)) * sweep.strangers,
        "jobs": jobs,
        "seconds_of_one_processor": round(seconds),
        "minutes": round(seconds / jobs / 60, 1),
        "notes": left_out(sweep),
        "members": n1,
        "nonmembers": n1,
        **_power(sweep, n1),
    }


def _is_known(cell: Cell, people: People, sweep: SweepSettings, cache: Path | None) -> bool:
    if cache is None:
        return False
    key = cell_key(people.digests, cell.setting, sweep)
    return CellStore(cache / "cells").read(key, cell.setting) is not None


def _seconds(sweep: SweepSettings, people: People, cells: Sequence[Cell], matched: Sequence[Cell]) -> float:
    """Of one processor, whatever else it does now: by a short shadow of each size, a model on it, and one attack."""
    sizes: dict[tuple[int, int], float] = {}
    models: dict[int, float] = {}
    sets, total, before = sweep.shadows + sweep.strangers, 0.0, torch.get_num_threads()
    torch.set_num_threads(1)
    frames = frames_of(people.pool, people.population, sweep.seed, sweep.networks) if cells else {}
    try:
        for cell, times in (*((c, 1.0) for c in cells), *((c, LONGER) for c in matched)):
            size = (cell.setting.ipc, cell.rounds)
            if size not in sizes:
                sizes[size], model = _timed(sweep, people, cell.setting, frames)
                models[cell.setting.ipc] = model
            total += sets * (sizes[size] * times + models[cell.setting.ipc])
    finally:
        torch.set_num_threads(before)
    return total


def _timed(
    sweep: SweepSettings, people: People, setting: AnySetting, frames: Mapping[str, Frame]
) -> tuple[float, float]:
    """Seconds of one set, and of attacking it."""
    if isinstance(setting, Setting):
        short: AnySetting = replace(setting, steps=min(setting.steps, setting.interval), sigma=0.0)
        parts = setting.steps / short.steps
    else:
        short, parts = replace(setting, rounds=1, sigma=0.0), float(setting.rounds)
    began = time.process_time()
    shadow = Shadows(people, short, sweep.seed, ShadowCache(None)).shadow(0)
    condensed = time.process_time()
    seen = Outsider(shadow.released, people.population, shadow.counts(people.pool))
    mean_tracing(seen, Candidates(people.pool.x, people.pool.y), frames["networks"])
    attacked = time.process_time()
    if sweep.models:
        classes = max(2, int(people.pool.y.max()) + 1)
        margins(*train_on(shadow.released, classes, sweep.seed, sweep.model_steps), people.pool.x, people.pool.y)
    trained = time.process_time()
    return (condensed - began) * parts, (attacked - condensed) * LIKE_IT + (trained - attacked)


def _power(sweep: SweepSettings, n1: int) -> dict[str, Any]:
    thresholds = thresholds_of(sweep)
    try:
        people = people_needed(thresholds, chance=CHANCE, rated=ATTACKS)
        needed: dict[str, Any] = {"members": people.members, "nonmembers": people.nonmembers, "chance": CHANCE}
        shadows: int | None = -(-people.members * sweep.shadows // max(1, n1))
    except ValueError as error:
        needed, shadows = {"members": None, "nonmembers": None, "reason": str(error)}, None
    effect = visible_effect(n1, n1, thresholds, chance=CHANCE, rated=ATTACKS)
    return {
        "needed": needed,
        "shadows_needed": shadows,
        "chance_to_say_none_detected": chance_to_clear(n1, n1, thresholds, rated=ATTACKS),
        "smallest_area_seen": None if effect is None else auc_of(effect),
        "chance_to_see_an_area_of": {
            f"{auc_of(EFFECT):.3f}": power_of(n1, n1, thresholds, EFFECT, rated=ATTACKS, tails=ATTACKS)
        },
        "planted_needed": planted_needed(n1 // sweep.shadows, n1 // sweep.shadows, tails=ATTACKS * sweep.shadows),
        "largest_certifiable_epsilon": largest_certifiable(n1, n1),
    }
