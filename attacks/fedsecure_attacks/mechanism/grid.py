"""The cells of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from fedsecure_attacks.federated.setting import FederatedSetting
from fedsecure_attacks.mechanism.ceiling import ExactMeans
from fedsecure_attacks.mechanism.makers import AnySetting
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.sweepfile import CURVES, Curve, Init, SweepSettings

__all__ = ["Cell", "deployed_cells", "exact_cell", "left_out", "matched_cells", "shared_residual", "steps_for"]

#: Digits that a residual for all cells is rounded to: it is a level to aim at.
DIGITS = 3
#: How much longer than as deployed, and what part of that, a federated run may take to match as closely as others.
MOST_LONGER, LEAST_SHARE = 2, 8


@dataclass(frozen=True)
class Cell:
    """One point of one curve."""

    curve: Curve
    setting: AnySetting

    @property
    def rounds(self) -> int:
        """Of a federated run; 1 for a single condensation."""
        return self.setting.rounds if isinstance(self.setting, FederatedSetting) else 1

    @property
    def words(self) -> str:
        """For people."""
        s = self.setting
        if isinstance(s, ExactMeans):
            return s.init
        start = {"noise": "noise", "avg": f"averages of {s.init_n}", "real": "records"}[s.init]
        noise = f", noise sigma {s.sigma:g}" if s.sigma else ""
        rounds = f", {s.rounds} rounds" if isinstance(s, FederatedSetting) else ""
        return f"{s.ipc} images a class from {start}{noise}{rounds}, {self.curve}"


def exact_cell() -> Cell:
    """The cell of the ceiling, whose setting is none of a method."""
    return Cell(CURVES[0], cast("AnySetting", ExactMeans()))


def deployed_cells(sweep: SweepSettings) -> list[Cell]:
    """Every combination, as it would be deployed."""
    grid, cells = sweep.grid, []
    rounds = grid.rounds if sweep.federated is not None else (1,)
    for init, sigma, many, ipc in itertools.product(
        dict.fromkeys(grid.init), dict.fromkeys(grid.sigma), dict.fromkeys(rounds), dict.fromkeys(grid.ipc)
    ):
        if not _left_out(sweep, init, sigma):
            cells.append(Cell(CURVES[0], _setting(sweep, ipc, init, sigma, many)))
    return cells


def _left_out(sweep: SweepSettings, init: str, sigma: float) -> bool:
    return sweep.federated is not None and sigma > 0 and init != "noise"


def left_out(sweep: SweepSettings) -> list[str]:
    """What is not among the cells, and what some cells mean, in words."""
    grid, notes = sweep.grid, []
    noisy, started = any(grid.sigma), [init for init in grid.init if init != "noise"]
    if noisy and started:
        which = " and ".join({"avg": "averages", "real": "records"}[init] for init in dict.fromkeys(started))
        if sweep.federated is not None:
            notes.append(f"noise with sets that start from {which} is left out: no plan takes it")
        else:
            notes.append(
                f"noise with sets that start from {which} is measured, and no plan takes it: they start from records "
                "without any noise, so it protects nobody"
            )
    if noisy and CURVES[1] in grid.curves:
        notes.append("cells with noise have no matched residual: noise is a floor that no step gets below")
    return notes


def _setting(sweep: SweepSettings, ipc: int, init: Init, sigma: float, rounds: int) -> AnySetting:
    each = sweep.condensation.model_dump()
    if sweep.federated is None:
        return Setting(ipc=ipc, init=init, sigma=sigma, **each)
    return FederatedSetting(
        ipc=ipc,
        init=init,
        sigma=sigma,
        rounds=rounds,
        **each,
        **sweep.federated.model_dump(),
    )


def shared_residual(sweep: SweepSettings, reached: dict[Cell, float]) -> float | None:
    """The level of the matched curve, from what the deployed cells ``reached``; ``None`` where no cell can have one."""
    if sweep.residual != "auto":
        return sweep.residual
    plain = {cell: value for cell, value in reached.items() if not cell.setting.sigma}
    chosen = sorted(v for cell, v in plain.items() if cell.setting.init == "noise") or sorted(plain.values())
    if not chosen:
        return None
    return max(float(f"{chosen[len(chosen) // 2]:.{DIGITS}g}"), 1e-12)


def matched_cells(sweep: SweepSettings, residual: float | None) -> list[Cell]:
    """Those without noise, condensed until all match as closely. Of federated runs, whose steps are fixed beforehand,
    the steps are found by ``sweep.run_sweep`` instead."""
    if CURVES[1] not in sweep.grid.curves or residual is None:
        return []
    return [
        Cell(CURVES[1], replace(cell.setting, residual=residual))
        for cell in deployed_cells(sweep)
        if not cell.setting.sigma
    ]


def steps_for(cell: Cell, reached: Callable[[FederatedSetting], float]) -> Cell:
    """``cell`` of federated runs with the fewest steps, by factors of two within ``MOST_LONGER`` and ``LEAST_SHARE``,
    that come to its residual by what a setting ``reached``; or the most, where none does. From then on it is a setting
    like others: each of its runs takes as many steps."""
    setting = cell.setting
    assert isinstance(setting, FederatedSetting)
    level, plain = setting.residual, replace(setting, residual=0.0)

    def with_steps(steps: int) -> FederatedSetting:
        return replace(plain, steps=steps)

    steps = plain.steps
    if reached(plain) > level:
        while steps < MOST_LONGER * plain.steps:
            steps *= 2
            if reached(with_steps(steps)) <= level:
                break
        return Cell(cell.curve, with_steps(steps))
    while steps // 2 >= max(1, plain.steps // LEAST_SHARE) and reached(with_steps(steps // 2)) <= level:
        steps //= 2
    return Cell(cell.curve, with_steps(steps))
