"""Whether what a plan sums can be masked, and in which streams: asked wherever a plan is checked."""

from __future__ import annotations

from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.secagg.masked import check_masked
from fedsecure.secagg.streams import Stream
from fedsecure.secagg.threshold import Threshold

__all__ = ["masked_exchanges", "masked_limits"]


def masked_exchanges(plan: Plan, method: Method) -> dict[str, tuple[Stream, ...]]:
    """Exchange -> the streams of its summed half, for every exchange that sums anything; empty with ``secagg`` "off".

    Raises ``ConfigError`` naming the tensor when its sum over the cohort fits no ring, or the cohort when it cannot be
    masked.
    """
    if plan.secagg == "off":
        return {}
    schemas = {exchange: method.schema(exchange) for exchange in method.exchanges}
    cohort = plan.cohort
    found = check_masked(schemas, method=plan.method.name, nodes=cohort.nodes, min_nodes=cohort.min_nodes)
    return {exchange: streams for exchange, streams in found.items() if streams}


def masked_limits(plan: Plan) -> Threshold:
    """How many of the nodes that a plan names a masked sum needs: t, or ``cohort.min_nodes`` where that is more. Raises
    ``ConfigError`` when they are no cohort."""
    return Threshold(len(set(plan.cohort.nodes)), plan.cohort.min_nodes)
