"""What a sweep is to be compared with: as many records released as they are, and differential privacy that costs as
much accuracy (audit page, section 3; Carlini et al. 2022 on what is left out)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsecure_attacks.mechanism.scoring import PRIMARY
from fedsecure_attacks.mechanism.sweep import Finished
from fedsecure_attacks.mechanism.sweepfile import CURVES
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.roc import Rate

__all__ = ["baselines"]

#: Accuracies count as equal within this.
EQUAL = 0.01


def baselines(cells: Sequence[Finished], pool: Labelled) -> dict[str, Any]:
    """The block of the report."""
    equal = "dp at equal accuracy"
    found, why = _private(cells)
    return {"raw images": _raw(cells, pool), equal: found, **({f"{equal}_reason": why} if why else {})}


def _raw(cells: Sequence[Finished], pool: Labelled) -> list[dict[str, Any]]:
    """``ipc`` of a class's members, who are half of its records in the pool, released as they are: they are told, and
    nobody else."""
    classes = len(set(pool.y.tolist()))
    members = len(pool) / classes / 2
    ipcs = sorted({one.cell.setting.ipc for one in cells})
    return [{"ipc": ipc, "tpr": min(1.0, ipc / members)} for ipc in ipcs if ipc]


def _private(cells: Sequence[Finished]) -> tuple[list[dict[str, Any]] | None, str | None]:
    """For each number of images, the noisiest cell of any number that is as accurate as the plain one."""
    noisy = [one for one in cells if one.cell.setting.sigma and one.cell.setting.init == "noise"]
    plain = [
        one
        for one in cells
        if one.cell.curve == CURVES[0] and one.cell.setting.init == "noise" and not one.cell.setting.sigma
    ]
    if not noisy or not plain:
        return None, "the sweep has no cells with noise beside cells without, both starting from noise"
    if any(one.result.accuracy is None for one in (*noisy, *plain)):
        return None, "no accuracy was measured: there are no test records, or no models"
    found = []
    for one in plain:
        target = _accuracy(one) - EQUAL
        able = [other for other in noisy if _accuracy(other) >= target and other.cell.rounds == one.cell.rounds]
        if able:
            best = max(able, key=lambda other: (other.cell.setting.sigma, _accuracy(other)))
            rate = best.result.attacks[PRIMARY].tpr
            found.append(
                {
                    "ipc": one.cell.setting.ipc,
                    "sigma": best.cell.setting.sigma,
                    "tpr": rate.value if isinstance(rate, Rate) else None,
                    "accuracy": best.result.accuracy,
                }
            )
    if not found:
        best_known = max(noisy, key=_accuracy)
        return None, (
            f"no noise of the sweep is as accurate as what it is compared with: the best, sigma "
            f"{best_known.cell.setting.sigma:g}, reaches {_accuracy(best_known):.3f}"
        )
    return found, None


def _accuracy(one: Finished) -> float:
    return one.result.accuracy or 0.0
