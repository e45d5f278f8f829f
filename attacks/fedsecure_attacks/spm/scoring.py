"""Every half is the target once, with the others as its references: the scores of all attacks on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsecure.method import Method
from fedsecure.methods.routed import RoutedBase
from fedsecure.plan import Plan
from fedsecure_attacks.mechanism.scoring import PRIMARY, Scored, combine
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.spm.final import label_probabilities, margins_of, rmia
from fedsecure_attacks.spm.gradients import Gradients, routing_features
from fedsecure_attacks.spm.halves import Half
from fedsecure_attacks.spm.tracing import Traced, implied_mean, trace
from fedsecure_attacks.statistics.calibration import against_others
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["Measured", "People", "score_halves"]

#: Uncalibrated attacks, which know nothing of other halves: the null is asked with them.
UPDATES = ("gradient-node", "gradient-sum")
DROPS = ("loss-drop-node", "loss-drop-sum")
PLAIN = (*UPDATES, "routing-head")
#: What nobody but the node sees when sums are masked.
HIDDEN = ("gradient-node", "gradient-node-calibrated", "loss-drop-node", "loss-drop-node-calibrated")


@dataclass(frozen=True, eq=False)
class People:
    """``pool``: candidates, of whom each half has some. ``population``: others of the same node. ``everyone``: others
    of all nodes."""

    pool: Labelled
    population: Labelled
    everyone: Labelled


@dataclass
class Measured:
    """``plain``: by half, the scores (n,) of each attack. ``facts``: by half, single figures by name."""

    plain: list[dict[str, Floats]] = field(default_factory=list)
    exact: list[tuple[Floats, float]] = field(default_factory=list)
    planted: tuple[int, int] = (0, 0)
    facts: list[dict[str, float]] = field(default_factory=list)


def score_halves(
    plan: Plan,
    method: Method,
    people: People,
    halves: Sequence[Half],
    node: str,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[list[Scored], Measured]:
    """Scores with each half as the target, and what else was measured on the way."""
    found = Measured()
    own, others = list[Floats](), list[Floats]()
    for number, half in enumerate(halves):
        scores, facts = _gradients(plan, method, people, half, node, seed, found)
        if isinstance(method, RoutedBase):
            more, said = _routing(method, people, half, node)
            scores, facts = scores | more, facts | said
        found.plain.append(scores)
        found.facts.append(facts)
        for part, into in ((people.pool, own), (people.population, others)):
            into.append(label_probabilities(plan, method, half, node, part.x, part.y))
        progress(number + 1, len(halves))
    hidden = HIDDEN if plan.secagg == "required" else ()
    every = [_calibrated(number, halves, found.plain, own, others) for number in range(len(halves))]
    inside = [half.inside for half in halves]
    seen = [{name: each for name, each in one.items() if name not in hidden} for one in every]
    scored = []
    for number, scores in enumerate(every):
        known = [i for i in range(len(halves)) if i != number]
        combined = combine(seen[number], [seen[i] for i in known], [inside[i] for i in known])
        scored.append(Scored({**scores, PRIMARY: combined}, inside[number]))
    return scored, found


def _gradients(
    plan: Plan, method: Method, people: People, half: Half, node: str, seed: int, found: Measured
) -> tuple[dict[str, Floats], dict[str, float]]:
    pool, population = people.pool, people.population
    found_scores, ranks = {name: np.zeros(len(pool)) for name in (*UPDATES, *DROPS)}, []
    counts, facts = pool.counts(half.inside), dict[str, float]()
    for seen in half.rounds:
        gradients = Gradients.under(plan, method, seen, node, population, seed)
        vectors = gradients.of(pool.x, pool.y)
        traced = Traced.of(pool, population, vectors, gradients.of(population.x, population.y))
        records = seen.records[0]
        for name in UPDATES:
            found_scores[name] += trace(traced, gradients.update(summed=name == "gradient-sum"), counts, records)
        for name in DROPS:
            found_scores[name] += gradients.drops(pool.x, pool.y, summed=name == "loss-drop-sum")
        ranks.append(traced.effective_rank)
        if seen is half.rounds[0]:
            facts["followed"] = _cosine(gradients.update(summed=False), vectors[half.inside].mean(axis=0))
            if (exact := traced.exact(half.inside)) is not None:
                found.exact.append(exact)
            if not found.planted[1]:
                found.planted = _planted(traced, half)
        facts["nodes"] = seen.records[1] / records
    facts["effective_rank"] = float(np.mean(ranks))
    return found_scores, facts


def _planted(traced: Traced, half: Half) -> tuple[int, int]:
    """How many of one in a hundred members, those with the longest gradients, rank above every non-member when their
    mean gradient alone is released, and how many these are. One whose gradient is nothing cannot be told by it."""
    members = np.flatnonzero(half.inside)
    lengths = traced.lengths[members]
    chosen = members[np.argsort(-lengths, kind="stable")[: max(1, len(members) // 100)]]
    scores = traced.scores(traced.centred[chosen].mean(axis=0), len(chosen))
    return int((scores[chosen] > scores[~half.inside].max()).sum()), len(chosen)


def _routing(method: RoutedBase, people: People, half: Half, node: str) -> tuple[dict[str, Floats], dict[str, float]]:
    routing, index = method.routing(half.server), method.index(node)
    pool, population = people.pool, people.population
    vectors, posterior = routing_features(method, routing, pool.x)
    others, _ = routing_features(method, routing, population.x)
    traced = Traced.of(pool, population, vectors, others)
    every, theirs = routing_features(method, routing, people.everyone.x)
    implied, counts = implied_mean(every, theirs[:, index]), pool.counts(half.inside)
    true, middle = vectors[half.inside].mean(axis=0), traced.middle(counts)
    facts = {
        "moments_cosine": _cosine(implied - middle, true - middle),
        "moments_gap": float(np.linalg.norm(implied - true) / (np.linalg.norm(true - middle) or 1.0)),
    }
    records = int(half.inside.sum())
    scores = {
        "routing-head": trace(traced, implied, counts, records),
        "routing-posterior": np.log(posterior[:, index].clip(1e-12)),
    }
    if (exact := traced.exact(half.inside)) is not None:
        scores["routing-exact-mean"] = exact[0]
    return scores, facts


def _calibrated(
    target: int,
    halves: Sequence[Half],
    plain: Sequence[Mapping[str, Floats]],
    own: Sequence[Floats],
    others: Sequence[Floats],
) -> dict[str, Floats]:
    """All attacks on ``target``, those included that compare it with the other halves."""
    out = np.stack([~half.inside for half in halves])  # (R, n)
    out[target] = False
    found = {name: each for name, each in plain[target].items() if name not in {"routing-posterior", CEILING}}

    def against(name: str) -> Floats:
        return against_others(np.stack([one[name] for one in plain]), out, target)

    for name in (*UPDATES, *DROPS):
        found[f"{name}-calibrated"] = against(name)
    if "routing-posterior" in plain[target]:
        found["routing-posterior-calibrated"] = against("routing-posterior")
    margins = np.stack([margins_of(each) for each in own])
    found["final-loss"] = margins[target]
    found["final-lira"] = against_others(margins, out, target, pooled=True)
    found["final-rmia"] = rmia(own, others, target)
    return found


#: The exact mean of h, which nobody sees: what the routing head would tell if it gave it away.
CEILING = "routing-exact-mean"


def _cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / ((np.linalg.norm(a) * np.linalg.norm(b)) or 1.0))
