"""The ceiling: exact class means, as if they were released themselves. No condensed set tells more of them under the
same networks, and it takes no condensing; it is also where the oracle is asked (F5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedsecure_attacks import controls
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.mechanism.measures import measure_attack
from fedsecure_attacks.mechanism.results import CellResult
from fedsecure_attacks.mechanism.scoring import PRIMARY, Scored, combine
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled, Pools
from fedsecure_attacks.splits import Mask, coin
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import Control

__all__ = ["ExactMeans", "audit_exact_means"]

#: Raised whenever the same people give other results.
CODE_VERSION = 1


@dataclass(frozen=True, slots=True)
class ExactMeans:
    """The setting of a cell in which class means are released as they are."""

    ipc: int = 0
    init: str = "exact class means"
    init_n: int = 0
    sigma: float = 0.0
    residual: float = 0.0
    steps: int = 0

    def to_json(self) -> dict[str, Any]:
        """All of it, and the version of the code."""
        return {"kind": "exact means", "code_version": CODE_VERSION, **asdict(self)}


def audit_exact_means(
    pool: Labelled, population: Labelled, frames: Mapping[str, Frame], *, shadows: int, seed: int, fpr: float
) -> CellResult:
    """Mean-tracing on the exact class means of ``shadows`` random halves of ``pool``, with the oracle among the
    controls."""
    splits = [coin(len(pool), seed, number) for number in range(shadows)]
    sets = [pool.take(inside) for inside in splits]
    plain = [_scores(pool, population, frames["networks"], sets, number) for number in range(shadows)]
    targets = []
    for number, inside in enumerate(splits):
        known = [i for i in range(shadows) if i != number]
        combined = combine(plain[number], [plain[i] for i in known], [splits[i] for i in known])
        targets.append(Scored({**plain[number], PRIMARY: combined}, inside))
    attacks = {name: measure_attack(name, targets, pool.y, fpr) for name in targets[0].scores}
    asked = _oracle(pool, population, splits[0], frames["networks"])
    members = int(sum(inside.sum() for inside in splits))
    return CellResult(ExactMeans(), 0.0, 0.0, attacks, None, (asked,), 0, members)


def _scores(
    pool: Labelled, population: Labelled, frame: Frame, sets: Sequence[Labelled], target: int
) -> dict[str, Floats]:
    candidates, others = Candidates(pool.x, pool.y), [s for i, s in enumerate(sets) if i != target]
    seen = Outsider(sets[target], population, _counts(sets[target]))
    return {
        "mean-tracing": mean_tracing(seen, candidates, frame),
        "mean-tracing-references": mean_tracing(seen, candidates, frame, others),
    }


def _counts(records: Labelled) -> dict[int, int]:
    return {int(c): int((records.y == c).sum()) for c in set(records.y.tolist())}


def _oracle(pool: Labelled, population: Labelled, inside: Mask, frame: Frame) -> Control:
    pools = Pools(pool.take(inside), pool.take(~inside), population)
    return controls.oracle(pools, Candidates(pool.x, pool.y), inside, frame)
