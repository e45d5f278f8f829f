"""A2, mean-tracing on class statistics: a mean logit is an exact mean over the node's records of a class, under a model
that its receiver has, and there is one in every round (audit page, A2).

Soft labels are softmax(v / tau): they are v but for one constant, and so tell nearly as much by themselves. Another
node sees the average over nodes; what it sent itself it can take out again, and of two nodes the other's mean is what
is left. The mean over one record is that record's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedsecure.models import Parameters
from fedsecure.plan import Plan
from fedsecure.plan.methods import FedAFSettings
from fedsecure_attacks.broadcast import logits_under, side_by_side
from fedsecure_attacks.embedding import RIDGE, Embedding
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.tracing import centred_on, trace
from fedsecure_attacks.observation import Coordinator, OtherNode, require
from fedsecure_attacks.records import Candidates, Images, Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = ["LogitsFrame", "difference_tracing", "mean_logit_tracing", "single_person_facts", "soft_label_tracing"]

#: The smallest soft label that is told from zero.
LEAST_LABEL = 1e-30
#: Share of the mean eigenvalue that is added to every one where means are exact: nothing but the people themselves
#: hides a member then, and the smallest directions, in which rounds differ, tell most.
EXACT_RIDGE = 0.001
#: Nobody's part in a mean is guessed to be smaller than this.
LEAST_SHARE = 1e-4
#: Two means closer than this (in logits) are one.
SAME = 1e-5


@dataclass(frozen=True, eq=False)
class LogitsFrame:
    """The population in the logits of every round, side by side, each round on one ``scales`` (T,): models are surer
    from round to round, and the first rounds tell as much. ``plain``: of the logits as they are; else each row of them
    without its own mean, which is what soft labels keep."""

    scales: tuple[float, ...]
    frame: Frame = field(repr=False)
    plain: bool

    @classmethod
    def of(cls, plan: Plan, models: Sequence[Parameters], population: Labelled, *, plain: bool = True) -> LogitsFrame:
        """Under the broadcast ``models`` of ``plan``."""
        parts = tuple(_kept(logits_under(plan, w), plain) for w in models)
        scales = tuple(1.0 / _spread(embed(population.x), population) for embed in parts)
        scaled = tuple(_scaled(embed, scale) for embed, scale in zip(parts, scales, strict=True))
        ridge = EXACT_RIDGE if plan.privacy is None else RIDGE
        return cls(scales, Frame.of(population, side_by_side(scaled), share=ridge), plain)

    def means(self, v: Sequence[Floats | None], held: Sequence[Sequence[int]]) -> dict[int, Floats]:
        """M - mu of each class (T * C,) from mean logits ``v`` (C, C) of every round, rows of the ``held`` classes;
        zero in rounds in which a class is not held or nothing was sent."""
        found: dict[int, list[Floats]] = {}
        for t, (each, classes, scale) in enumerate(zip(v, held, self.scales, strict=True)):
            for c in classes if each is not None else ():
                if each is None or c not in self.frame.means:
                    continue
                mu = np.split(self.frame.means[c], len(self.scales))
                rows = found.setdefault(c, [np.zeros(len(m)) for m in mu])
                rows[t] = _row(each[c], self.plain) * scale - mu[t]
        return {c: np.concatenate(rows) for c, rows in found.items()}


def _kept(embed: Embedding, plain: bool) -> Embedding:
    return embed if plain else lambda x: _row(embed(x), plain)


def _row(logits: Floats, plain: bool) -> Floats:
    """Logits (..., C), without their mean unless ``plain``."""
    return logits if plain else np.asarray(logits - logits.mean(axis=-1, keepdims=True))


def _scaled(embed: Embedding, scale: float) -> Embedding:
    def scaled(x: Images) -> Floats:
        return embed(x) * scale

    return scaled


def _spread(logits: Floats, population: Labelled) -> float:
    """Root mean square of the logits (n, C) around their class's mean, over all coordinates."""
    squares = [((rows - rows.mean(axis=0)) ** 2).sum() for rows in _by_class(logits, population)]
    return float(np.sqrt(np.sum(squares) / logits.size)) or 1.0


def _by_class(rows: Floats, population: Labelled) -> list[Floats]:
    return [rows[population.y == c] for c in np.unique(population.y)]


def mean_logit_tracing(
    seen: Coordinator, candidates: Candidates, logits: LogitsFrame | None = None, *, knows_pool: bool = False
) -> Floats:
    """Scores (n,) by the mean logits v_kc of all rounds. ``knows_pool``: M0 is the mean of the candidates, of whom the
    attacker has the list, not the population's. ``logits``: ``LogitsFrame.of`` what is seen, where it was computed
    before."""
    require(seen, Coordinator)
    frame = logits or LogitsFrame.of(seen.plan, [r.w for r in seen.rounds], seen.population)
    moved = frame.means([r.mean_logits for r in seen.rounds], [r.held for r in seen.rounds])
    return _traced(frame, candidates, moved, seen.counts, knows_pool)


def soft_label_tracing(seen: Coordinator, candidates: Candidates, *, knows_pool: bool = False) -> Floats:
    """The same by the soft labels r_kc alone: tau log r is v without its mean, C - 1 dimensions a round."""
    require(seen, Coordinator)
    assert isinstance(seen.plan.method, FedAFSettings)
    tau = seen.plan.method.tau
    frame = LogitsFrame.of(seen.plan, [r.w for r in seen.rounds], seen.population, plain=False)
    v = [None if r.soft_labels is None else tau * np.log(r.soft_labels.clip(LEAST_LABEL)) for r in seen.rounds]
    return _traced(frame, candidates, frame.means(v, [r.held for r in seen.rounds]), seen.counts, knows_pool)


def difference_tracing(seen: OtherNode, candidates: Candidates) -> Floats:
    """Scores (n,) of membership in the other nodes' records, of two nodes the other's: the average less one's own part.
    How many records they have of a class is not sent; it is guessed."""
    require(seen, OtherNode)
    frame = LogitsFrame.of(seen.plan, seen.models, seen.own)
    v, held = [], []
    for average, own in zip(seen.global_logits, seen.own_logits, strict=True):
        others, known = others_logits(average, own, seen.nodes)
        v.append(others)
        held.append(known)
    moved = frame.means(v, held)
    return _traced(frame, candidates, moved, {c: guessed_count(frame.frame, c, m) for c, m in moved.items()}, False)


def guessed_count(frame: Frame, c: int, moved: Floats) -> int:
    """How many people of class ``c`` the mean M is of, by M - mu (D,): a mean of n lies 1 / n as far from mu, squared,
    as a person does. mu is a mean of about as many people as were held out. 1 at least."""
    rows = frame.held_out.get(c, np.zeros((0, len(moved))))
    person = float((frame.whitener.apply(rows) * rows).sum(axis=1).mean()) if len(rows) else 0.0
    if person <= 0:
        return 1
    size = float((frame.whitener.apply(moved[None])[0] * moved).sum()) / person * (1 + 1 / len(rows)) - 1 / len(rows)
    return max(1, round(1 / max(size, LEAST_SHARE)))


def others_logits(average: Floats, own: Floats, nodes: int) -> tuple[Floats, tuple[int, ...]]:
    """The mean logits of the others (C, C) in one round, and the classes that they hold: (K v - v_own) / (K - 1), or v
    itself where one does not hold the class. Exact for two nodes; for more, when all of the others hold it."""
    holds = np.abs(own).sum(axis=1) > 0  # (C,)
    others = np.where(holds[:, None], (nodes * average - own) / (nodes - 1), average)
    known = (np.abs(average).sum(axis=1) > 0) & (np.abs(average - own).max(axis=1) > SAME)
    return others, tuple(np.flatnonzero(known).tolist())


def _traced(
    logits: LogitsFrame,
    candidates: Candidates,
    moved: Mapping[int, Floats],
    counts: Mapping[int, int],
    knows_pool: bool,
) -> Floats:
    if knows_pool:
        centred = logits.frame.centred(candidates.x, candidates.y)
        pool = {c: centred[candidates.y == c].mean(axis=0) for c in moved if (candidates.y == c).any()}
        moved = centred_on(moved, [pool])
    return trace(logits.frame, candidates, moved, counts)


def single_person_facts(seen: Coordinator) -> dict[str, str]:
    """Leaks that follow by rule, name -> words: classes of one record whose mean logits were sent."""
    require(seen, Coordinator)
    sent = {c for r in seen.rounds if r.mean_logits is not None for c in r.held}
    alone = sorted(c for c in sent if seen.counts.get(c) == 1)
    return {f"class {c}": f"class {c} has one record, so its mean logits are that person's logits" for c in alone}
