"""What makes this node leave the run of a masked plan at its first exchange, so far as it can be said before."""

from __future__ import annotations

from collections.abc import Iterable

from fedsecure.errors import FedSecureError
from fedsecure.plan import Plan
from fedsecure_node.masking.terms import TrustedCohorts

__all__ = ["begun_before", "without_cohort"]


def without_cohort(plan: Plan, cohorts: TrustedCohorts) -> str:
    """That this node trusts no cohort of the plan's nodes, and what to do; ``""`` when it does, or needs none."""
    if plan.secagg == "off":
        return ""
    try:
        cohorts.for_nodes(plan.cohort.nodes)
    except FedSecureError as error:
        return f"{error}: {error.hint}; until then this node leaves the run at its first masked exchange"
    return ""


def begun_before(plan: Plan, others: Iterable[Plan]) -> str:
    """That the first of ``others``, plans to whose masked sums this node gave, begins from the same model as ``plan``,
    if coordinators keep to the plans; ``""`` when none does. The exchange decides (``masking.repeats``), by the model
    that comes."""
    if plan.secagg == "off":
        return ""
    for other in others:
        if other.digest() != plan.digest() and _beginning(other) == _beginning(plan):
            return (
                f"it begins from the same model as plan {other.name} ({other.digest()[:12]}), to whose masked sums "
                "this node gave: the node leaves its run at the first masked exchange (REPLAYED); it takes another seed"
            )
    return ""


def _beginning(plan: Plan) -> tuple[object, ...]:
    """What the coordinator's first model follows from."""
    return plan.seed, plan.task, plan.model, plan.method.name
