"""What each attacker sees, as types: an attack takes the observation of its threat model and reaches nothing else
(audit page, section 1.1).

T1, an outsider: a released set, how it is made, and people of the same population. T2, another node: besides, what is
broadcast. T3, the coordinator that does what it should: every release of every round, and the models. T4, a coordinator
that chooses the models. T5, differential privacy's own adversary, who knows everything but one bit. None holds a
member, a non-member, or who is which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedsecure.models import Parameters
from fedsecure.plan import Plan
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.scores import Floats

__all__ = [
    "AllButOne", "Coordinator", "MaliciousCoordinator", "OtherNode", "Outsider", "Round", "public_plan", "require",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Outsider:
    """T1. ``released``: the condensed records. ``population``: the reference records. ``counts``: records of each class
    that the release was made from, as public as a node's size is."""

    released: Labelled
    population: Labelled
    counts: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Round:
    """What the coordinator knows of one round: the broadcast model ``w``, and of the audited node the released set
    (pixels as records have them), its mean logits and soft labels (C, C), rows of classes that it does not hold zero,
    and which classes it ``held``."""

    w: Parameters = field(repr=False)
    released: Labelled | None = None
    mean_logits: Floats | None = field(default=None, repr=False)
    held: tuple[int, ...] = ()
    soft_labels: Floats | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class OtherNode:
    """T2. ``models`` and ``global_logits`` (C, C) of every round as broadcast, and ``own``, its records, which are its
    population, too. With two nodes it knows the other's mean logits: twice the mean, less its own. ``plan``: as every
    node has it."""

    plan: Plan = field(repr=False)
    models: tuple[Parameters, ...] = field(repr=False)
    global_logits: tuple[Floats, ...] = field(repr=False)
    own_logits: tuple[Floats, ...] = field(repr=False)
    own: Labelled
    nodes: int


@dataclass(frozen=True, eq=False)
class Coordinator:
    """T3. ``plan``, ``rounds`` in order, and the population. A node's seed is its own: the plan is ``public_plan``."""

    plan: Plan = field(repr=False)
    rounds: tuple[Round, ...]
    population: Labelled
    counts: Mapping[int, int]

    def as_outsider(self) -> Outsider:
        """What an outsider sees of the last released set."""
        released = [r.released for r in self.rounds if r.released is not None]
        if not released:
            raise LookupError("no set was released")
        return Outsider(released[-1], self.population, self.counts)


@dataclass(frozen=True, eq=False)
class MaliciousCoordinator(Coordinator):
    """T4: the ``w`` of its rounds are its own choice."""


@dataclass(frozen=True, eq=False)
class AllButOne:
    """T5. ``outputs`` (n,): of the mechanism on the data with, or without, one canary, projected on it; ``sigma`` of
    the accounted noise. For lower bounds on epsilon alone."""

    outputs: Floats = field(repr=False)
    sigma: float


def public_plan(plan: Plan) -> Plan:
    """``plan`` without its seed, from which a shadow's nodes draw what real ones draw from seeds of their own."""
    return plan.model_copy(update={"seed": 0, "randomness": "private"})


def require(seen: object, kind: type) -> None:
    """Raise ``TypeError`` unless ``seen`` is what an attack of this threat model is shown."""
    if not isinstance(seen, kind):
        raise TypeError(f"this attack sees what a {kind.__name__} sees, and was shown a {type(seen).__name__}")
