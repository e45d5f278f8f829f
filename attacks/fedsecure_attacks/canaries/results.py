"""What an audit by canaries found, and its report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedsecure_attacks.reporthead import controls_json, report_head
from fedsecure_attacks.statistics.intervals import Interval
from fedsecure_attacks.statistics.tradeoff import Against
from fedsecure_attacks.verdict import Control, Verdict

__all__ = ["ERRORS", "PRIMARY", "SLACK", "SURE", "CanaryAudit", "ViewResult", "canaries_report"]

#: Relative slack of what is compared with the clip norm, and of noise-free sums in single precision.
SLACK = 1e-3
#: Standard errors that a control allows.
ERRORS = 5.0
#: A measured noise or clip is called wrong at this confidence, and controls fail so rarely.
SURE = 0.9999
#: The view whose bound is told first: nothing but the node's own noise stands before it.
PRIMARY = "node"


@dataclass(frozen=True)
class ViewResult:
    """One view. ``estimate``: epsilon by the Gaussian fit. ``against``: lower bounds beside what was accounted.
    ``noise``: measured standard deviation over the accounted one, with its interval. ``clip``: what a record counts for
    over the clip norm. ``arrived``: the part of the canaries that is found, with its standard error."""

    view: str
    estimate: float
    against: Against
    noise: float
    noise_interval: Interval
    noise_most: float
    clip: float
    arrived: float
    arrived_error: float


@dataclass(frozen=True)
class CanaryAudit:
    """The result; ``views`` is empty when nothing could be measured."""

    verdict: Verdict
    plan: dict[str, Any]
    counts: dict[str, int]
    inputs: dict[str, str]
    delta: float
    views: tuple[ViewResult, ...] = ()
    controls: tuple[Control, ...] = ()
    notes: tuple[str, ...] = ()
    shared_noise: float | None = None
    shared_noise_most: float | None = None


def canaries_report(audit: CanaryAudit) -> dict[str, Any]:
    """The report of ``audit canaries``, strict JSON. Two runs differ: noise has no seed."""
    return {
        **report_head("canaries", audit.verdict, primary=PRIMARY, plan=audit.plan, inputs=audit.inputs),
        "counts": audit.counts,
        "notes": list(audit.notes),
        "controls": controls_json(audit.controls),
        "attacks": {},
        "threat_model": "T5",
        "surface": "summed update",
        **_epsilon(audit),
    }


def _epsilon(audit: CanaryAudit) -> dict[str, Any]:
    if not audit.views:
        return {}
    by_name = {view.view: view for view in audit.views}
    primary = max(audit.views, key=lambda view: view.against.worst.excess)
    pair = primary.against.worst
    if not pair.contradicts:
        primary = by_name[PRIMARY]
        pair = next(p for p in primary.against.pairs if p.delta == audit.delta)
    return {
        "epsilon": {
            "lower": pair.lower,
            "accounted": _finite(pair.accounted),
            "largest": pair.largest,
            "confidence": primary.against.confidence,
            "delta": pair.delta,
            "method": primary.against.method,
            "estimate": _finite(primary.estimate),
        },
        "canaries": {name: _view(view) for name, view in by_name.items()},
        "shared_noise": audit.shared_noise,
        "shared_noise_most": audit.shared_noise_most,
    }


def _view(view: ViewResult) -> dict[str, Any]:
    return {
        "estimate": _finite(view.estimate),
        "noise": view.noise,
        "noise_interval": {"low": view.noise_interval.low, "high": view.noise_interval.high, "confidence": 0.95},
        "clip": view.clip,
        "arrived": view.arrived,
        "arrived_error": _finite(view.arrived_error),
        "inside": view.against.members,
        "out": view.against.nonmembers,
        "bounds": [
            {"delta": p.delta, "lower": p.lower, "accounted": _finite(p.accounted), "largest": p.largest}
            for p in view.against.pairs
        ],
    }


def _finite(value: float) -> float | None:
    """Infinity is none: it bounds nothing."""
    return value if math.isfinite(value) else None
