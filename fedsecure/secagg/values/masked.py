"""Which exchanges of a plan are summed under masks and as what, the same wherever it is asked: when the plan is
checked, at every node, and at the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedsecure.errors import ConfigError
from fedsecure.schema import Schema
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.spec import check_streams
from fedsecure.secagg.values.streams import Stream, derive_streams

__all__ = ["MAX_VECTOR_BYTES", "check_masked", "masked_streams"]

#: The most bytes of one node's masked vectors: 8 GiB, a billion values in the 64-bit ring.
MAX_VECTOR_BYTES = 8 << 30


def masked_streams(schema: Schema, *, method: str, exchange: str, nodes: int) -> tuple[Stream, ...]:
    """The streams of one exchange for a cohort of ``nodes``, named ``<method>.<exchange>.<tensor>``; none when the
    exchange sums nothing. Raises ``ConfigError`` naming a tensor or stream that cannot be summed under masks."""
    if not schema.summed:
        return ()
    streams = derive_streams(schema, prefix=f"{method}.{exchange}", nodes=nodes)
    check_streams([stream.spec for stream in streams], nodes, max_bytes=MAX_VECTOR_BYTES)
    return streams


def check_masked(
    exchanges: Mapping[str, Schema], *, method: str, nodes: Sequence[str], min_nodes: int
) -> dict[str, tuple[Stream, ...]]:
    """The streams of every exchange that sums something, once a plan with masks can work at all.

    ``exchanges``: schema by name. ``nodes``: those that the plan names. ``min_nodes``: the fewest that may contribute.
    Raises ``ConfigError``: the cohort is not named, smaller than 3, larger than 64, or may shrink below t; or a tensor
    that cannot be summed under masks.
    """
    if not nodes:
        raise ConfigError(
            "secagg: the plan's cohort is open, so nobody can say whose keys the masks are made with",
            hint="name the nodes in cohort.nodes, or set secagg = 'off'",
        )
    threshold = Threshold(len(set(nodes)))
    if min_nodes < threshold.required:
        raise ConfigError(
            f"secagg: cohort.min_nodes {min_nodes} is below {threshold.required}, which a masked sum of a cohort of "
            f"{threshold.nodes} needs",
            hint=f"set cohort.min_nodes to at least {threshold.required}",
        )
    found = {
        name: masked_streams(schema, method=method, exchange=name, nodes=threshold.nodes)
        for name, schema in exchanges.items()
    }
    return {name: streams for name, streams in found.items() if streams}
