"""The audit of a mechanism: shadows, scores, and what they say over clusters, one of each (condensation, class)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedsecure_attacks.embedding import pixels, random_networks
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.mechanism.cache import ShadowCache
from fedsecure_attacks.mechanism.scoring import Scored, score_shadows
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.mechanism.shadows import coin
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.intervals import Interval, cluster_interval
from fedsecure_attacks.statistics.roc import NotMeasurable, Rate, auc, tpr_at
from fedsecure_attacks.statistics.scores import Scores

__all__ = ["AttackOnMechanism", "CellResult", "audit_cell"]

#: Records of either kind that a cluster needs to have an area.
LEAST_RECORDS = 3


@dataclass(frozen=True, slots=True)
class AttackOnMechanism:
    """``auc``: mean over clusters, with its t-interval. ``tpr``: over all shadows' records together."""

    auc: float
    interval: Interval | None
    tpr: Rate | NotMeasurable
    clusters: int


@dataclass(frozen=True)
class CellResult:
    """One cell: its setting, mean matching residual, mean steps, and what each attack found."""

    setting: Setting
    residual: float
    steps: float
    attacks: Mapping[str, AttackOnMechanism]


def audit_cell(
    pool: Labelled,
    population: Labelled,
    setting: Setting,
    *,
    shadows: int = 8,
    seed: int = 0,
    networks: int = 8,
    with_models: bool = True,
    cache: ShadowCache | None = None,
    fpr: float = 0.01,
    progress: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> CellResult:
    """Condense ``shadows`` random halves of ``pool`` and attack each with the others as references. ``population``: who
    the attacker learns people from; none of them is in the pool."""
    cache, digest = cache or ShadowCache(None), pool.digest()
    made = []
    for number in range(shadows):
        made.append(cache.get(pool, digest, coin(len(pool), seed, number), setting, seed, number))
        progress("condensing", number + 1, shadows)
    classes = max(2, int(max(pool.y.max(), population.y.max())) + 1)
    frames = {
        "networks": Frame.of(population, random_networks(pool.x.shape[1:], classes, seed, networks)),
        "pixels": Frame.of(population, pixels),
    }
    scored = score_shadows(
        pool, made, population, frames, seed, with_models=with_models,
        progress=lambda done, of: progress("attacking", done, of),
    )  # fmt: skip
    attacks = {name: _attack(name, scored, pool, fpr) for name in scored[0].scores}
    return CellResult(setting, _mean([s.residual for s in made]), _mean([s.steps for s in made]), attacks)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _attack(name: str, scored: Sequence[Scored], pool: Labelled, fpr: float) -> AttackOnMechanism:
    areas = []
    for one in scored:
        for c in np.unique(pool.y).tolist():
            here = pool.y == c
            inside = one.inside[here]
            if min(int(inside.sum()), int((~inside).sum())) >= LEAST_RECORDS:
                areas.append(auc(Scores.of(one.scores[name][here], inside)))
    scores = np.concatenate([one.scores[name] for one in scored])
    inside = np.concatenate([one.inside for one in scored])
    return AttackOnMechanism(
        _mean(areas) if areas else 0.5, cluster_interval(areas), tpr_at(Scores.of(scores, inside), fpr), len(areas)
    )
