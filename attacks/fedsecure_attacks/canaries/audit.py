"""``audit canaries``: one run with canaries, and whether what they show fits what was accounted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2

from fedsecure.data.dataset import Dataset
from fedsecure.errors import ConfigError
from fedsecure.plan import Plan
from fedsecure.plan.privacy import DPSGDSettings
from fedsecure.privacy.accounting import default_delta, epsilon
from fedsecure.privacy.costs import plan_spends
from fedsecure.randomness import derive_seed
from fedsecure_attacks.canaries import words
from fedsecure_attacks.canaries.reading import VIEWS, Reading, fitted_epsilon, read
from fedsecure_attacks.canaries.results import SURE, CanaryAudit, ViewResult
from fedsecure_attacks.canaries.running import Ran, run_rounds
from fedsecure_attacks.statistics.intervals import Interval
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.statistics.tradeoff import against_accounted
from fedsecure_attacks.verdict import decide_accounting

__all__ = ["CanaryProfile", "audit_canaries"]

CONFIDENCE = 0.95
#: Beside 1 / (10 n), where bounds are compared with what was accounted: larger ones tell more.
DELTAS = (1e-3, 1e-2, 0.05, 0.1, 0.2, 0.3)
#: Where outputs are cut, in parts of what a canary adds.
THRESHOLDS = (0.5, 1.0, 1.5)


@dataclass(frozen=True, slots=True)
class CanaryProfile:
    """``node``: whose records canaries stand among; ``None``: the smallest node's. ``rounds`` of the plan that run.
    ``canaries``: at most so many, half of them in."""

    node: str | None = None
    rounds: int = 1
    canaries: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.canaries < 1 or self.seed < 0:
            raise ValueError("rounds and canaries are at least 1, a seed is not negative")


def audit_canaries(
    plan: Plan,
    data: Mapping[str, Dataset],
    profile: CanaryProfile,
    progress: Callable[[str], None] = lambda what: None,
) -> CanaryAudit:
    """Run ``plan`` over ``data`` (node -> records) with canaries. Raises ``ConfigError`` for a plan without DP-SGD, or
    a node that it does not have."""
    settings = _settings(plan)
    target = _target(data, profile)
    rounds = min(profile.rounds, plan.rounds)
    generator = np.random.default_rng(derive_seed(profile.seed, "canaries", plan.digest()))
    ran = run_rounds(plan, data, target, rounds, profile.canaries, generator, progress)
    delta = default_delta(len(data[target]))
    fixed = {
        "mode": "canaries", "plan": plan.digest(), **asdict(profile), "node": target, "rounds": rounds,
        "deltas": [delta, *DELTAS], "confidence": CONFIDENCE, "cuts": list(THRESHOLDS),
    }  # fmt: skip
    inputs = {node: dataset.digest() for node, dataset in sorted(data.items())}
    counts = {"nodes": len(data), "records": len(data[target]), "rounds": len(ran.rounds)}
    if not ran.rounds:
        assert ran.masks is not None
        verdict = decide_accounting([ran.masks], [], [], "")
        return CanaryAudit(verdict, fixed, counts, inputs, delta, controls=(ran.masks,))
    return _judged(plan, settings, ran, _Fixed(fixed, counts, inputs, delta))


@dataclass(frozen=True)
class _Fixed:
    plan: dict[str, Any]
    counts: dict[str, int]
    inputs: dict[str, str]
    delta: float


def _judged(plan: Plan, settings: DPSGDSettings, ran: Ran, fixed: _Fixed) -> CanaryAudit:
    history = plan_spends(plan, fixed.counts["records"], (), len(ran.rounds))
    accounted = {delta: max(0.0, epsilon(history, delta)) for delta in (fixed.delta, *DELTAS)}
    readings = [read(ran, view, settings) for view in VIEWS]
    views = tuple(_view(reading, ran, settings, accounted) for reading in readings)
    controls = [] if ran.masks is None else [ran.masks]
    facts: list[str] = []
    for reading, view in zip(readings, views, strict=True):
        controls += words.controls(reading, view)
        facts += words.contradictions(view)
    unseen = [said for view in views for said in words.doubts(view)]
    doubts = unseen if len(unseen) == len(views) else []
    shared = _shared_noise(ran)
    if shared is not None and shared[1] < 1:
        facts.append(f"there is {shared[0]:.3g} of the noise that nodes share, at most {shared[1]:.3g}")
    return CanaryAudit(
        verdict=decide_accounting(controls, facts, doubts, words.all_fits(views, fixed.delta)),
        plan=fixed.plan,
        counts={**fixed.counts, **_canary_counts(readings[0])},
        inputs=fixed.inputs,
        delta=fixed.delta,
        views=views,
        controls=tuple(controls),
        notes=(
            *words.notes(plan, views, None if shared is None else shared[0]),
            *(said for said in unseen if not doubts),
        ),
        shared_noise=None if shared is None else shared[0],
        shared_noise_most=None if shared is None else shared[1],
    )


def _settings(plan: Plan) -> DPSGDSettings:
    if plan.privacy is None:
        raise ConfigError(
            f"plan {plan.name}: no [privacy] table, so no epsilon was accounted that canaries could be held against",
            hint="audit what it shows of members instead: fedsecure audit spm PLAN",
        )
    if not isinstance(plan.privacy, DPSGDSettings):
        raise ConfigError(
            f"plan {plan.name}: privacy.kind {plan.privacy.kind!r} (canaries go into gradients: 'dp-sgd')",
            hint="audit what condensed sets show of members: fedsecure audit mechanism",
        )
    return plan.privacy


def _target(data: Mapping[str, Dataset], profile: CanaryProfile) -> str:
    if profile.node is None:
        return min(sorted(data), key=lambda node: len(data[node]))
    if profile.node not in data:
        raise ConfigError(
            f"--node {profile.node}: the plan's simulation has no such node (it has {', '.join(sorted(data))})"
        )
    return profile.node


def _view(reading: Reading, ran: Ran, settings: DPSGDSettings, accounted: Mapping[float, float]) -> ViewResult:
    outputs, inside = reading.seen.outputs, reading.inside
    each = 1 - (1 - CONFIDENCE) / len(VIEWS)
    # Of what one canary adds on average, which is known before any noise is.
    thresholds = float(reading.own[inside].mean()) * np.array(THRESHOLDS)
    against = against_accounted(Scores.of(outputs, inside), accounted, thresholds, confidence=each)
    noise = reading.noise
    squares, m = float(np.square(noise).sum()), len(noise)
    slope, error = _arrived(reading)
    (amplitude,) = {call.amplitude for call in ran.probe.calls if call.node == ran.probe.target and call.amplitude} or {
        0.0
    }
    return ViewResult(
        reading.view,
        fitted_epsilon(reading.cosines[inside], reading.dimension, min(accounted)),
        against,
        math.sqrt(squares / m),
        Interval(*_ratio(squares, m, CONFIDENCE), CONFIDENCE, "chi-square"),
        _ratio(squares, m, SURE)[1],
        amplitude / settings.clip,
        slope,
        error,
    )


def _ratio(squares: float, m: int, confidence: float) -> tuple[float, float]:
    """Between what the true standard deviation lies, of ``m`` values whose ``squares`` sum up so."""
    tail = (1 - confidence) / 2
    return math.sqrt(squares / float(chi2.ppf(1 - tail, m))), math.sqrt(squares / float(chi2.ppf(tail, m)))


def _shared_noise(ran: Ran) -> tuple[float, float] | None:
    """Noise in shares over what was accounted, and what it is at most; ``None`` where there is none."""
    if not ran.shared:
        return None
    squares, count = float(np.square(ran.shared).sum()), len(ran.shared)
    return math.sqrt(squares / count), _ratio(squares, count, SURE)[1]


def _arrived(reading: Reading) -> tuple[float, float]:
    """The slope of what is seen on what was added, and its standard error by the noise as it is."""
    weight = float(np.square(reading.own).sum())
    if not weight:
        return 0.0, math.inf
    spread = float(np.std(reading.seen.outputs - reading.own))
    return float(reading.seen.outputs @ reading.own) / weight, spread / math.sqrt(weight)


def _canary_counts(reading: Reading) -> dict[str, int]:
    return {
        "canaries": len(reading.inside),
        "canaries_inside": int(reading.inside.sum()),
        "values_sent": reading.dimension,
    }
