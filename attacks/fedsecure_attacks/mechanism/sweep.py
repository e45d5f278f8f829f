"""A sweep over cells: shadows first, then attacks, a few cells at a time, all in parallel; what is done is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fedsecure.errors import AuditError
from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.mechanism.audit import audit_people, frames_of
from fedsecure_attacks.mechanism.cache import ShadowCache
from fedsecure_attacks.mechanism.ceiling import ExactMeans, audit_exact_means
from fedsecure_attacks.mechanism.cells import CellStore, cell_key
from fedsecure_attacks.mechanism.costs import Clock, attack_cost, shadow_cost
from fedsecure_attacks.mechanism.grid import Cell, deployed_cells, matched_cells, shared_residual, steps_for
from fedsecure_attacks.mechanism.makers import AnySetting, Shadows
from fedsecure_attacks.mechanism.people import People
from fedsecure_attacks.mechanism.results import CellResult
from fedsecure_attacks.mechanism.running import Backend, all_of
from fedsecure_attacks.mechanism.sweepfile import CURVES, SweepSettings
from fedsecure_attacks.records import Labelled

__all__ = ["Finished", "Watch", "ceiling", "run_sweep"]


@dataclass(frozen=True)
class Finished:
    """A cell, what was found, and whether all of it was read from the cache."""

    cell: Cell
    result: CellResult
    read: bool


class Watch:
    """Told of a sweep's progress; this one says nothing."""

    def began(self, what: str) -> None:
        """Something that is not a cell."""

    def moved(self, clock: Clock) -> None:
        """A part is done."""

    def finished(self, done: Finished, number: int, of: int) -> None:
        """Cell ``number`` (from 1) is."""


@dataclass(frozen=True)
class _Sweep:
    """What every task of a sweep is handed. ``folder``: of shadows and cells."""

    people: People
    sweep: SweepSettings
    folder: Path

    @property
    def classes(self) -> int:
        return len(set(self.people.pool.y.tolist()))

    @property
    def sets(self) -> int:
        return self.sweep.shadows + self.sweep.strangers


@dataclass(frozen=True)
class _Condense:
    base: _Sweep
    setting: AnySetting
    number: int


@dataclass(frozen=True)
class _Attack:
    base: _Sweep
    cell: Cell


def run_sweep(
    sweep: SweepSettings,
    people: People,
    folder: Path,
    *,
    jobs: int,
    backend: Backend = "local",
    watch: Watch | None = None,
) -> list[Finished]:
    """All cells in their order. What lies in ``folder`` from before is read and not made again. Raises ``AuditError``
    for people who cannot be audited, ``StoreError`` when ``folder`` cannot be written to."""
    base, watch = _Sweep(people, sweep, folder), watch or Watch()
    cells = deployed_cells(sweep)
    if not cells:
        raise AuditError("no cell is left to be measured", hint="noise goes with federated sets that start from noise")
    wanted = CURVES[0] in sweep.grid.curves
    later = 0 if CURVES[1] not in sweep.grid.curves else sum(not c.setting.sigma for c in cells)
    needed = wanted or sweep.residual == "auto"
    clock = Clock(sum((_cost(base, cell.setting) for cell in cells), 0.0) if needed else 0.0)
    clock.grow(sum(2 * _cost(base, cell.setting) for cell in cells if later and not cell.setting.sigma))
    found: list[Finished] = []
    total = (len(cells) if needed else 0) + later
    if needed:
        found = _run(base, cells, jobs, backend, watch, clock, total, 0)
    level = shared_residual(sweep, {f.cell: f.result.residual for f in found})
    matched = _run(
        base, _fitted(base, matched_cells(sweep, level), jobs, backend), jobs, backend, watch, clock, total, len(found)
    )
    return [*(found if wanted else []), *matched]


def _cost(base: _Sweep, setting: AnySetting) -> float:
    each = shadow_cost(setting, base.classes)
    return base.sets * each + attack_cost(setting, base.classes, base.sets, base.sweep.models)


def _run(
    base: _Sweep,
    cells: Sequence[Cell],
    jobs: int,
    backend: Backend,
    watch: Watch,
    clock: Clock,
    total: int,
    before: int,
) -> list[Finished]:
    store, found = CellStore(base.folder / "cells"), dict[Cell, Finished]()
    missing = []
    for cell in cells:
        known = store.read(cell_key(base.people.digests, cell.setting, base.sweep), cell.setting)
        if known is None:
            missing.append(cell)
            continue
        found[cell] = Finished(cell, known, True)
        clock.add(_cost(base, cell.setting), worked=False)
        watch.moved(clock)
        watch.finished(found[cell], before + len(found), total)
    for at in range(0, len(missing), max(1, jobs)):
        wave = missing[at : at + max(1, jobs)]
        tasks = [_Condense(base, cell.setting, number) for cell in wave for number in range(base.sets)]
        tasks.sort(key=lambda task: -shadow_cost(task.setting, base.classes))
        for cost, made in all_of(_condense, tasks, jobs, backend):
            clock.add(cost, worked=made)
            watch.moved(clock)
        for cell, result in all_of(_attack, [_Attack(base, cell) for cell in wave], jobs, backend):
            found[cell] = Finished(cell, result, False)
            clock.add(attack_cost(cell.setting, base.classes, base.sets, base.sweep.models), worked=True)
            watch.moved(clock)
            watch.finished(found[cell], before + len(found), total)
    return [found[cell] for cell in cells]


def _fitted(base: _Sweep, cells: list[Cell], jobs: int, backend: Backend) -> list[Cell]:
    """``cells``, of federated runs with the steps that the first shadow needs, in their order."""
    if base.sweep.federated is None or not cells:
        return cells
    found = dict(all_of(_fit, [_Attack(base, cell) for cell in cells], jobs, backend))
    return [found[cell] for cell in cells]


def _fit(task: _Attack) -> tuple[Cell, Cell]:
    base = task.base

    def reached(setting: FederatedSetting) -> float:
        cache = ShadowCache(base.folder / "shadows")
        return Shadows(base.people, setting, base.sweep.seed, cache).shadow(0).residual

    return task.cell, steps_for(task.cell, reached)


def _condense(task: _Condense) -> tuple[float, bool]:
    """Make one set, or find that it is there; its cost, and whether it was made."""
    base, cache = task.base, ShadowCache(task.base.folder / "shadows")
    source = Shadows(base.people, task.setting, base.sweep.seed, cache)
    if task.number < base.sweep.shadows:
        source.shadow(task.number)
    else:
        source.stranger(task.number - base.sweep.shadows)
    return shadow_cost(task.setting, base.classes), cache.made > 0


def _attack(task: _Attack) -> tuple[Cell, CellResult]:
    """Attack a cell whose shadows are there, and keep what is found."""
    base, sweep, cache = task.base, task.base.sweep, ShadowCache(task.base.folder / "shadows")
    population = Shadows(base.people, task.cell.setting, sweep.seed, cache).population
    result = audit_people(
        base.people, task.cell.setting, shadows=sweep.shadows, seed=sweep.seed, networks=sweep.networks,
        with_models=sweep.models, model_steps=sweep.model_steps, cache=cache, fpr=sweep.thresholds.fpr,
        strangers=sweep.strangers,
        frames=_frames(_ByContent(base.people.pool), _ByContent(population), sweep.seed, sweep.networks),
    )  # fmt: skip
    CellStore(base.folder / "cells").write(cell_key(base.people.digests, task.cell.setting, sweep), result)
    return task.cell, result


def ceiling(sweep: SweepSettings, people: People, folder: Path) -> CellResult:
    """The cell of exact class means, read or measured (``audit_exact_means``)."""
    store, key = CellStore(folder / "cells"), cell_key(people.digests, ExactMeans(), sweep)
    known = store.read(key, ExactMeans())
    if known is None:
        (known,) = all_of(_exact, [_Sweep(people, sweep, folder)], 1, "local")
        store.write(key, known)
    return known


def _exact(base: _Sweep) -> CellResult:
    people, sweep = base.people, base.sweep
    population = people.population if sweep.federated is None else people.strangers
    frames = _frames(_ByContent(people.pool), _ByContent(population), sweep.seed, sweep.networks)
    return audit_exact_means(
        people.pool, population, frames, shadows=sweep.shadows, seed=sweep.seed, fpr=sweep.thresholds.fpr
    )


class _ByContent:
    """Records that are equal when their content is."""

    def __init__(self, records: Labelled) -> None:
        self.records, self._digest = records, records.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByContent) and other._digest == self._digest

    def __hash__(self) -> int:
        return hash(self._digest)


@lru_cache(maxsize=2)
def _frames(pool: _ByContent, population: _ByContent, seed: int, networks: int) -> Mapping[str, Frame]:
    """Once a process, and not once a cell."""
    return frames_of(pool.records, population.records, seed, networks)
