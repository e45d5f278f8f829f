"""The sum that a coordinator announces with the next exchange: is the broadcast what that sum gave, and is the sum the
one that this node helped to unmask?"""

from __future__ import annotations

from fedsecure.errors import RemoteProtocolError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.secagg.manifest import CohortManifest
from fedsecure.secagg.masked import masked_streams
from fedsecure.secagg.results import SessionResult, parse_result
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.sessionbook import SessionBook

__all__ = ["check_announced_sum", "last_masked"]

_HINT = "the coordinator lost its state or misbehaves; ask its operator; nothing was computed"


def last_masked(method: Method, key: ExchangeKey) -> tuple[int, int] | None:
    """Round and step of the last exchange before ``key`` that sums anything; ``None`` when ``key`` is the first."""
    steps = [step for step, exchange in enumerate(method.exchanges) if method.schema(exchange).summed]
    if before := [step for step in steps if step < key.step]:
        return key.round, before[-1]
    return (key.round - 1, steps[-1]) if steps and key.round else None


def check_announced_sum(
    work: pb.Exchange,
    method: Method,
    key: ExchangeKey,
    manifest: CohortManifest,
    book: SessionBook,
    *,
    plan: Plan,
    node: str,
    least: int,
) -> None:
    """Check ``work.result`` in a run whose sums are masked. ``least``: the fewest nodes of a sum by plan and policy.

    Raises ``RemoteProtocolError`` when it is missing right after a masked exchange, announced where there was none,
    over fewer nodes than t or ``least``, over others, not what the broadcast of ``work`` came from, or another sum than
    the one of that exchange that this node helped to unmask; ``SecAggError`` when it is malformed.
    """
    last = last_masked(method, key)
    if not work.result:
        if last is not None and last == _before(method, key):
            raise RemoteProtocolError(
                f"{key}: the coordinator does not say which sum the broadcast came from", hint=_HINT
            )
        return
    if last is None:
        raise RemoteProtocolError(f"{key}: the coordinator announces a sum before there was any", hint=_HINT)
    result = parse_result(work.result)
    if result.next_state_digest.hex() != work.broadcast_digest:
        raise RemoteProtocolError(f"{key}: the broadcast is not the one that the announced sum gave", hint=_HINT)
    _check_members(result, key, manifest, least)
    round_, exchange = last[0], method.exchanges[last[1]]
    schema, name = method.schema(exchange), plan.method.name
    streams = masked_streams(schema, method=name, exchange=exchange, nodes=len(manifest.nodes))
    if len(result.sum_sha256) != len(streams):
        many = f"{len(result.sum_sha256)} streams where {exchange} has {len(streams)}"
        raise RemoteProtocolError(f"{key}: the announced sum has {many}", hint=_HINT)
    released = book.released(key.plan, exchange, round_)
    if released is not None and node in result.survivors and released != result.transcript3:
        raise RemoteProtocolError(
            f"{key}: the announced sum is another than the one that this node helped to unmask", hint=_HINT
        )


def _check_members(result: SessionResult, key: ExchangeKey, manifest: CohortManifest, least: int) -> None:
    strangers = sorted(set(result.survivors) - {member.node for member in manifest.nodes})
    least = max(least, manifest.threshold.required)
    if strangers:
        raise RemoteProtocolError(f"{key}: the announced sum is over {strangers[0]}, not of the cohort", hint=_HINT)
    if len(result.survivors) < least:
        few = f"{len(result.survivors)} nodes (allowed: >= {least})"
        raise RemoteProtocolError(f"{key}: the announced sum is over {few}", hint=_HINT)


def _before(method: Method, key: ExchangeKey) -> tuple[int, int]:
    """Round and step of the exchange right before ``key``."""
    return (key.round, key.step - 1) if key.step else (key.round - 1, len(method.exchanges) - 1)
