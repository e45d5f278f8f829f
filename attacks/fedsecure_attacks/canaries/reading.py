"""What canaries say of one view of a run: the node's own update, or the sum that is all the coordinator has.

All is in units of one gradient before the division by the batch: the change of the parameters, over what a gradient of
one in every step would have moved them by. Differential privacy's own adversary (T5) knows everything but whether one
canary is in, so what the records added along it is taken away first, by what ``Probe`` wrote down before the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsecure.plan.privacy import DPSGDSettings
from fedsecure_attacks.canaries.probe import Call
from fedsecure_attacks.canaries.running import Observed, Ran
from fedsecure_attacks.observation import AllButOne
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["VIEWS", "Reading", "read"]

#: What the target alone sent, and what the coordinator has when sums are masked.
VIEWS = ("node", "sum")


@dataclass(frozen=True, eq=False)
class Reading:
    """``seen``: what T5 sees, the output along each canary (m,), with what it knows taken away. ``own`` (m,): what the
    canary itself adds, 0 for one that is out. ``std`` (m,): of the noise that was accounted. ``inside`` (m,).
    ``cosines`` (m,): of the canaries with the update as it is, and its number of values, ``dimension``."""

    view: str
    seen: AllButOne
    own: Floats = field(repr=False)
    std: Floats = field(repr=False)
    inside: npt.NDArray[np.bool_] = field(repr=False)
    cosines: Floats = field(repr=False)
    dimension: int

    @property
    def noise(self) -> Floats:
        """What is neither known nor the canary's (m,), in standard deviations of the noise that was accounted."""
        return np.asarray((self.seen.outputs - self.own) / self.std)


def read(ran: Ran, view: str, settings: DPSGDSettings) -> Reading:
    """The mean over the rounds that ran, at least one."""
    canaries = ran.probe.canaries
    assert canaries is not None
    parts = [_round(ran, number, observed, view, settings) for number, observed in enumerate(ran.rounds)]
    update = np.mean([part.update for part in parts], axis=0)  # (d,)
    along = canaries.rows @ update.astype(np.float32)
    along = along.astype(np.float64)
    own = np.mean([part.own for part in parts], axis=0)
    known = np.mean([part.known for part in parts], axis=0)
    std = np.sqrt(np.sum([part.variance for part in parts], axis=0)) / len(parts)
    length = float(np.linalg.norm(update)) or 1.0
    outputs = np.asarray(along - known + own)
    return Reading(view, AllButOne(outputs, settings.sigma), own, std, canaries.inside, along / length, len(update))


@dataclass(frozen=True, eq=False)
class _Round:
    update: Floats
    known: Floats
    own: Floats
    variance: Floats


def _round(ran: Ran, number: int, observed: Observed, view: str, settings: DPSGDSettings) -> _Round:
    calls = [call for call in ran.probe.calls if call.round == number]
    (target,) = [call for call in calls if call.node == ran.probe.target]
    calls = [target] if view == "node" else calls
    canaries = ran.probe.canaries
    assert canaries is not None
    # A node counts in the sum as its records do, over those of the target.
    parts = {c.node: observed.records[c.node] / observed.records[target.node] for c in calls}
    known = sum((_known(c) * (parts[c.node] * target.expected / c.expected) for c in calls), np.zeros(len(canaries)))
    others = sum((parts[c.node] * target.expected / c.expected) ** 2 for c in calls)
    shares = _shares(target, canaries.rows)  # (G, m)
    weights = np.stack([moved.weights(len(target.known)) for moved in target.moved])  # (G, T)
    joined = np.stack(target.joined)  # (T, m)
    own = target.amplitude * np.einsum("gt,tm,gm->m", weights, joined.astype(np.float64), shares)
    variance = (settings.sigma * settings.clip) ** 2 * others * (np.square(weights).sum(axis=1) @ shares)
    sent = observed.sent if view == "node" else observed.total
    return _Round(_update(target, observed, sent, sum(parts.values())), known - 0.0, own, variance)


def _known(call: Call) -> Floats:
    """What the sums before noise add along each canary, (m,)."""
    weights = np.stack([moved.weights(len(call.known)) for moved in call.moved])  # (G, T)
    return np.asarray(np.einsum("gt,tgm->m", weights, np.stack(call.known)))


def _shares(call: Call, rows: npt.NDArray[np.float32]) -> Floats:
    """The part of each canary's squared length that each group of parameters has, (G, m)."""
    found = np.zeros((len(call.moved), len(rows)))
    for place in call.places:
        if place.sent is not None:
            found[place.group] += np.square(rows[:, place.at : place.at + place.size], dtype=np.float64).sum(axis=1)
    return found


def _update(call: Call, observed: Observed, sent: object, nodes: float) -> Floats:
    """The change of all that is sent (d,), ``nodes`` times what one node with the target's records weighs; what weight
    decay moves is known, and taken away."""
    assert hasattr(sent, "__getitem__")
    records, parts = observed.records[call.node], []
    for place in call.places:
        if place.sent is None:
            continue
        moved = call.moved[place.group]
        before = np.asarray(observed.broadcast[place.sent.removeprefix("shared.")], np.float64).reshape(-1)
        after = np.asarray(sent[place.sent], np.float64).reshape(-1) / records
        length = moved.length(len(call.known))
        change = nodes * before * (1 - length * moved.weight_decay) - after
        parts.append(change * (call.expected / length))
    return np.concatenate(parts)


def fitted_epsilon(cosines: Floats, dimension: int, delta: float) -> float:
    """Epsilon by the fit of Andrew et al. (2023): cosines of canaries that are in are N(mean, std^2), those of canaries
    that are not N(0, 1 / d). An estimate, not a bound. Infinite where the two share nothing."""
    mean, std, null = float(cosines.mean()), float(cosines.std(ddof=1)), 1 / math.sqrt(dimension)
    grid = _grid(mean, std, null)
    inside, out = _log_density(grid, mean, std), _log_density(grid, 0.0, null)
    width = np.gradient(grid)

    def excess(epsilon: float) -> float:
        both = ((inside, out), (out, inside))
        return max(float((np.maximum(np.exp(a) - np.exp(b + epsilon), 0.0) * width).sum()) for a, b in both)

    low, high = 0.0, 1.0
    if excess(0.0) <= delta:
        return 0.0
    while excess(high) > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > delta else (low, middle)
    return high


def _grid(mean: float, std: float, null: float) -> Floats:
    edges: Sequence[float] = (mean - 12 * std, mean + 12 * std, -12 * null, 12 * null)
    return np.linspace(min(edges), max(edges), 20_001)


def _log_density(x: Floats, mean: float, std: float) -> Floats:
    std = max(std, 1e-12)
    return np.asarray(-0.5 * ((x - mean) / std) ** 2 - math.log(std * math.sqrt(2 * math.pi)))
