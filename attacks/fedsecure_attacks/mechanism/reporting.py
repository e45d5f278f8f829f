"""The report of ``audit mechanism``: strict JSON, the same bytes for the same inputs and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import norm

from fedsecure_attacks.mechanism.baselines import baselines
from fedsecure_attacks.mechanism.deciding import Judged, direction, judge
from fedsecure_attacks.mechanism.entries import attack_entry, curve_entry, short_entry
from fedsecure_attacks.mechanism.notes import notes_of
from fedsecure_attacks.mechanism.people import People
from fedsecure_attacks.mechanism.results import CellResult
from fedsecure_attacks.mechanism.scoring import PRIMARY
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.sweep import Finished
from fedsecure_attacks.mechanism.sweepfile import SweepSettings
from fedsecure_attacks.reporthead import controls_json, report_head
from fedsecure_attacks.statistics.power import people_needed
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate
from fedsecure_attacks.statistics.theory import dp_effect, tpr_of
from fedsecure_attacks.verdict import Control, Thresholds, Verdict, Word

__all__ = ["MechanismAudit", "invalid_report", "mechanism_report", "plan_of", "thresholds_of"]

#: The chance with which "none detected" is to be said, for the people that are needed.
CHANCE = 0.8


@dataclass(frozen=True)
class MechanismAudit:
    """All that was found. ``ceiling``: the cell of exact class means; ``active``: what a coordinator that cheats could
    reach, where it was asked for."""

    sweep: SweepSettings
    people: People
    cells: Sequence[Finished]
    ceiling: CellResult
    active: Mapping[str, Any] | None = None

    @property
    def judged(self) -> Judged:
        """Verdicts."""
        return judge(self.cells, thresholds_of(self.sweep), self.ceiling.controls)


def thresholds_of(sweep: SweepSettings) -> Thresholds:
    """What is accepted."""
    accepted = sweep.thresholds
    return Thresholds(tpr=accepted.tpr, auc=accepted.auc, fpr=accepted.fpr)


def plan_of(sweep: SweepSettings) -> dict[str, Any]:
    """What is fixed before anything is measured; no paths, which say nothing of what is in the files."""
    asked = sweep.model_dump(mode="json")
    for name in ("pool", "population", "test", "folder"):
        asked["data"].pop(name)
    return {"mode": "mechanism", "primary": PRIMARY, **asked}


def _head(sweep: SweepSettings, verdict: Verdict, inputs: Mapping[str, str]) -> dict[str, Any]:
    return report_head("mechanism", verdict, primary=PRIMARY, plan=plan_of(sweep), inputs=inputs)


def invalid_report(sweep: SweepSettings, why: str) -> dict[str, Any]:
    """Of an audit that could not be made: people who are in both parts, values that are not numbers."""
    head = _head(sweep, Verdict(Word.INVALID, why), {})
    return {**head, "counts": {}, "notes": [], "controls": {}, "attacks": {}}


def mechanism_report(audit: MechanismAudit) -> dict[str, Any]:
    """The report."""
    judged, sweep, people = audit.judged, audit.sweep, audit.people
    worst = audit.cells[judged.worst]
    found = {
        **_head(sweep, judged.overall, people.digests),
        "threat_model": "T1" if sweep.federated is None else "T3",
        "surface": "condensed images" if sweep.federated is None else "condensed images and mean logits of all rounds",
        "counts": _counts(audit),
        "notes": [
            f"attacks and curves are of the cell that tells most: {worst.cell.words}",
            *notes_of(sweep, audit.cells, audit.ceiling),
        ],
        "controls": _controls(audit),
        "attacks": {
            name: attack_entry(name, attack, judged, thresholds_of(sweep))
            for name, attack in worst.result.attacks.items()
        },
        "people": _people(worst, thresholds_of(sweep)),
        "roc": {name: curve_entry(attack) for name, attack in worst.result.attacks.items()},
        "theory": _theory(audit, worst),
        "sweep": [_cell(i, one, judged, thresholds_of(sweep)) for i, one in enumerate(audit.cells)],
        "baselines": baselines(audit.cells, people.pool),
        **_needed(thresholds_of(sweep)),
    }
    return {**found, **({"active": dict(audit.active)} if audit.active is not None else {})}


def _counts(audit: MechanismAudit) -> dict[str, Any]:
    people, sweep = audit.people, audit.sweep
    return {
        "pool": len(people.pool),
        "population": len(people.population),
        "test": 0 if people.test is None else len(people.test),
        "shadows": sweep.shadows,
        "sets_of_others": 0 if sweep.fast else sweep.strangers,
        "cells": len(audit.cells),
        "members_in_all_shadows": audit.ceiling.members,
    }


def _controls(audit: MechanismAudit) -> dict[str, Any]:
    found = controls_json(audit.ceiling.controls)
    for name in ("planted", "null"):
        each = [(one, c) for one in audit.cells for c in one.result.controls if c.name == name]
        if each:
            found[name] = _together(each)
    found["direction"] = _together([(one, direction(one)) for one in audit.cells])
    return found


def _together(each: Sequence[tuple[Finished, Control]]) -> dict[str, Any]:
    failed = [(one, c) for one, c in each if not c.passed]
    if failed:
        one, control = failed[0]
        return {"passed": False, "found": f"{len(failed)} of {len(each)} cells; {one.cell.words}: {control.said}"}
    return {"passed": True, "found": f"in all {len(each)} cells; the first: {each[0][1].said}"}


def _cell(index: int, one: Finished, judged: Judged, thresholds: Thresholds) -> dict[str, Any]:
    setting = one.cell.setting
    return {
        "setting": setting.to_json(),
        "curve": one.cell.curve,
        "ipc": setting.ipc,
        "init": setting.init,
        "sigma": setting.sigma,
        "rounds": one.cell.rounds,
        "residual": one.result.residual,
        "steps": one.result.steps,
        "accuracy": one.result.accuracy,
        "verdict": judged.cells[index].word.value,
        "reason": judged.cells[index].reason,
        "attacks": {name: short_entry(attack, thresholds) for name, attack in one.result.attacks.items()},
    }


def _people(worst: Finished, thresholds: Thresholds) -> dict[str, Any]:
    attack = worst.result.attacks[PRIMARY]
    if not isinstance(attack.tpr, Rate) or attack.tpr_interval is None:
        why = attack.tpr.why if isinstance(attack.tpr, NotMeasurable) else "no interval"
        return {"exposed": None, "of": worst.result.members, "reason": why}
    return {
        "exposed": attack.tpr.count,
        "of": attack.tpr.of,
        "confidence": attack.tpr_interval.confidence,
        "low": int(attack.tpr_interval.low * attack.tpr.of),
        "high": -int(-attack.tpr_interval.high * attack.tpr.of // 1),
        "by_chance": thresholds.fpr * attack.tpr.of,
        "how": f"by all attacks together, under the setting that tells most: {worst.cell.words}; members of all its "
        "random halves, so that one person can count more than once",
    }


def _theory(audit: MechanismAudit, worst: Finished) -> dict[str, Any]:
    fpr = list(worst.result.attacks[PRIMARY].curve.fpr)
    best = max(audit.ceiling.attacks.values(), key=lambda attack: attack.auc)
    effect = float(norm.ppf(min(best.auc, 1 - 1e-9)) * 2**0.5)
    found = {"exact class means (normal curve of their area)": _effect(fpr, effect)}
    setting = worst.cell.setting
    if setting.sigma and setting.init == "noise":
        releases = setting.releases if isinstance(setting, Setting) else worst.cell.rounds
        found["most that differential privacy allows (F7)"] = _effect(fpr, dp_effect(setting.sigma, releases))
    return found


def _effect(fpr: Sequence[float], effect: float) -> dict[str, Any]:
    values = tpr_of(effect, [min(max(a, 1e-12), 1 - 1e-12) for a in fpr]).tolist()
    return {"fpr": list(fpr), "tpr": [round(min(1.0, max(0.0, v)), 9) for v in values]}


def _needed(thresholds: Thresholds) -> dict[str, Any]:
    try:
        found = people_needed(thresholds, chance=CHANCE)
    except ValueError:
        return {}
    return {"needed": {"members": found.members, "nonmembers": found.nonmembers, "chance": CHANCE}}
