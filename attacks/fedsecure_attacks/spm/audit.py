"""``audit spm``: random halves of one node's records, trained again, attacked, and judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

from fedsecure.data.dataset import Dataset
from fedsecure.data.partition import Dealt
from fedsecure.errors import ConfigError
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure_attacks.mechanism.measures import AttackOnMechanism, measure_attack, over_rate_p
from fedsecure_attacks.mechanism.scoring import PRIMARY, Scored
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.splits import coin
from fedsecure_attacks.spm.controls import controls_of
from fedsecure_attacks.spm.final import without_pool
from fedsecure_attacks.spm.gradients import check_method
from fedsecure_attacks.spm.halves import Half, HalfCache, observed_rounds
from fedsecure_attacks.spm.scoring import HIDDEN, Measured, People, score_halves
from fedsecure_attacks.statistics.intervals import Interval
from fedsecure_attacks.verdict import AttackResult, Control, Thresholds, Verdict, adjusted, decide

__all__ = ["LEAST_HALVES", "SpmAudit", "SpmProfile", "audit_spm"]

CONFIDENCE, SURE = 0.95, 0.9999
#: Fewer halves calibrate nothing.
LEAST_HALVES = 4
#: Fewer records of the node, or of the people that the population is learnt from, compare nothing.
LEAST_RECORDS = 20


@dataclass(frozen=True, slots=True)
class SpmProfile:
    """``node``: whose members; ``None``: the smallest node's. ``halves``: runs of the plan. ``observed``: rounds that
    are attacked in each, at most."""

    node: str | None = None
    halves: int = 8
    observed: int = 4
    seed: int = 0
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        if self.halves < LEAST_HALVES or self.observed < 1 or self.seed < 0:
            raise ValueError(f"{self.halves} halves, {self.observed} rounds (at least {LEAST_HALVES}, and 1)")


@dataclass(frozen=True)
class SpmAudit:
    """The result. ``results`` of all attacks; those in ``hidden`` see what nobody sees when sums are masked, and do not
    count. ``measured``: figures by name, means over halves."""

    verdict: Verdict
    plan: dict[str, Any]
    counts: dict[str, int]
    inputs: dict[str, str]
    results: tuple[AttackResult, ...]
    attacks: Mapping[str, AttackOnMechanism]
    hidden: tuple[str, ...]
    controls: tuple[Control, ...]
    notes: tuple[str, ...]
    measured: Mapping[str, float]
    effect: float | None


def audit_spm(
    plan: Plan,
    dealt: Dealt,
    profile: SpmProfile,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> SpmAudit:
    """``dealt``: the records that the plan's simulation deals out. ``cache``: a folder of halves. Raises
    ``ConfigError`` for a method that sends no parameters, a node that is not there or has too few records;
    ``RunAborted`` as a simulation does."""
    method = build_method(plan)
    check_method(plan, method)
    node = _node(dealt.train, profile)
    people = _people(dealt, node)
    keep, held = observed_rounds(plan.rounds, profile.observed), HalfCache(cache, plan, dealt.train, node)
    halves = []
    for number in range(profile.halves):
        halves.append(held.half(coin(len(people.pool), profile.seed, number), keep, number))
        progress("training", number + 1, profile.halves)
    scored, measured = score_halves(
        plan, method, people, halves, node, profile.seed, lambda done, of: progress("attacking", done, of)
    )
    fixed = {
        "mode": "spm", "primary": PRIMARY, "plan": plan.digest(), **asdict(profile), "node": node,
        "rounds_observed": [number + 1 for number in keep],
    }  # fmt: skip
    return _judged(plan, profile, people, halves, scored, measured, fixed)


def _judged(
    plan: Plan,
    profile: SpmProfile,
    people: People,
    halves: Sequence[Half],
    scored: Sequence[Scored],
    measured: Measured,
    fixed: dict[str, Any],
) -> SpmAudit:
    accepted = profile.thresholds
    # One cluster is one run: records of one run are not independent of each other.
    together = np.zeros(len(people.pool), np.int64)
    attacks = {name: measure_attack(name, scored, together, accepted.fpr) for name in scored[0].scores}
    hidden = HIDDEN if plan.secagg == "required" else ()
    counted = [name for name in attacks if name not in hidden]
    joint = 1 - (1 - CONFIDENCE) / len(counted)
    seen = adjusted([_result(name, attacks[name], accepted, joint) for name in counted])
    controls = controls_of(measured, scored)
    verdict = decide(seen, controls, accepted, primary=PRIMARY, facts={}, doubts=[], copies=0)
    unseen = [_result(name, attacks[name], accepted, joint, rates=False) for name in hidden]
    members = float(np.mean([half.inside.sum() for half in halves]))
    effects = [effect for _, effect in measured.exact]
    return SpmAudit(
        verdict=verdict,
        plan=fixed,
        counts={
            "pool": len(people.pool), "population": len(people.population), "everyone": len(people.everyone),
            "halves": len(halves), "members_a_half": round(members), "rounds": plan.rounds,
        },
        inputs={"pool": people.pool.digest(), "population": people.population.digest()},
        results=(*seen, *unseen),
        attacks=attacks,
        hidden=tuple(hidden),
        controls=controls,
        notes=_notes(plan, hidden, members),
        measured={name: float(np.mean([f[name] for f in measured.facts])) for name in measured.facts[0]},
        effect=float(np.mean(effects)) if effects else None,
    )  # fmt: skip


def _node(data: Mapping[str, Dataset], profile: SpmProfile) -> str:
    node = profile.node or min(sorted(data), key=lambda name: len(data[name]))
    if node not in data:
        raise ConfigError(f"--node {node}: the plan's simulation has no such node (it has {', '.join(sorted(data))})")
    if len(data[node]) < LEAST_RECORDS:
        raise ConfigError(
            f"node {node}: {len(data[node])} records (at least {LEAST_RECORDS})", hint="audit a larger node: --node"
        )
    return node


def _people(dealt: Dealt, node: str) -> People:
    own, every = dealt.tests.get(node, dealt.test), dealt.test
    pool = _labelled("pool", dealt.train[node])
    population = without_pool(_labelled("population", own), pool)
    if len(population) < LEAST_RECORDS:
        raise ConfigError(
            f"node {node}: {len(population)} records that it did not train on (at least {LEAST_RECORDS})",
            hint="hold out more of them: simulation.test_fraction",
        )
    return People(pool, population, without_pool(_labelled("everyone", every), pool))


def _labelled(name: str, data: Dataset) -> Labelled:
    return Labelled(name, data.x, data.y)


def _result(
    name: str, attack: AttackOnMechanism, accepted: Thresholds, joint: float, *, rates: bool = True
) -> AttackResult:
    return AttackResult(
        name,
        attack.auc,
        _area(attack, CONFIDENCE),
        _area(attack, joint),
        _area(attack, SURE),
        attack.tpr,
        attack.tpr_interval,
        attack.tail,
        rates=rates,
        rate_p=over_rate_p(attack, accepted) if attack.tpr_interval is not None else None,
    )


def _area(attack: AttackOnMechanism, confidence: float) -> Interval:
    """Of the mean area over runs."""
    method = f"t over {attack.clusters} runs"
    if attack.error is None:
        return Interval(0.0, 1.0, confidence, method)
    width = float(t.ppf((1 + confidence) / 2, attack.clusters - 1)) * attack.error
    low, high = attack.auc - width, attack.auc + width
    return Interval(max(0.0, low), min(1.0, high), confidence, method)


def _notes(plan: Plan, hidden: Sequence[str], members: float) -> tuple[str, ...]:
    notes = [
        f"each run has about {members:.0f} of the node's records, an independent coin for each: half of what the node "
        "has, so a person is told a little better than in the run that is deployed"
    ]
    if hidden:
        notes.append("sums are masked: what the node alone sent is shown for comparison, and does not count")
    if plan.privacy is not None:
        notes.append("noise comes from the operating system, so two audits differ unless halves are cached")
    return tuple(notes)
