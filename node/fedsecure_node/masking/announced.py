"""The sum that a coordinator announces with the next exchange: is the broadcast what that sum gave, and is the sum the
one that this node helped to unmask?

A coordinator that died between shares and sum has none to announce: it skips the rest of that round. Announced is then
the sum before it, or none yet, and the broadcast is the one that this node has seen (``RunBook.check_model``).
"""

from __future__ import annotations

from fedsecure.errors import RemoteProtocolError
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.protocol.results import SessionResult, parse_result
from fedsecure.secagg.values.masked import masked_streams
from fedsecure.text import counted
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_node.keys import ExchangeKey
from fedsecure_node.store.sessionbook import SessionBook

__all__ = ["Place", "announced_place", "check_announced_sum", "last_masked", "other_survivors"]

#: Round and step of an exchange.
Place = tuple[int, int]

_HINT = "the coordinator lost its state or misbehaves; ask its operator; nothing was computed"


def last_masked(method: Method, key: ExchangeKey) -> Place | None:
    """Round and step of the last exchange before ``key`` that sums anything; ``None`` when ``key`` is the first."""
    steps = [step for step, exchange in enumerate(method.exchanges) if method.schema(exchange).summed]
    if before := [step for step in steps if step < key.step]:
        return key.round, before[-1]
    return (key.round - 1, steps[-1]) if steps and key.round else None


def announced_place(result: SessionResult, method: Method) -> Place | None:
    """Of which exchange the announced sum is; ``None`` when the method sums nothing in an exchange of that name."""
    if result.purpose not in method.exchanges or not method.schema(result.purpose).summed:
        return None
    return result.round, method.exchanges.index(result.purpose)


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
) -> Place | None:
    """Check ``work.result`` in a run whose sums are masked. Returns of which exchange it is; ``None``: there is none,
    and every round before was skipped. ``least``: the fewest nodes of a sum by plan and policy.

    Raises ``RemoteProtocolError`` when it is of an exchange that is not before ``key``, or, within the round of
    ``key``, not the last one; over fewer nodes than t or ``least``, over others, not what the broadcast of ``work``
    came from, or another sum than the one of that exchange that this node helped to unmask, or said to be over others
    than that one; ``SecAggError`` when it is malformed.
    """
    last = last_masked(method, key)
    if not work.result:
        if last is not None and last[0] == key.round:
            raise RemoteProtocolError(
                f"{key}: the coordinator does not say which sum the broadcast came from", hint=_HINT
            )
        return None
    if last is None:
        raise RemoteProtocolError(f"{key}: the coordinator announces a sum before there was any", hint=_HINT)
    result = parse_result(work.result)
    place = announced_place(result, method)
    if place is None or place > last or (place != last and last[0] == key.round):
        where = f"round {result.round + 1} {result.purpose}"
        raise RemoteProtocolError(f"{key}: the coordinator announces a sum of {where} with it", hint=_HINT)
    if result.next_state_digest.hex() != work.broadcast_digest:
        raise RemoteProtocolError(f"{key}: the broadcast is not the one that the announced sum gave", hint=_HINT)
    _check_members(result, key, manifest, least)
    round_, exchange = place[0], method.exchanges[place[1]]
    schema, name = method.schema(exchange), plan.method.name
    streams = masked_streams(schema, method=name, exchange=exchange, nodes=len(manifest.nodes))
    if len(result.sum_sha256) != len(streams):
        many = f"{counted(len(result.sum_sha256), 'stream')} where {exchange} has {len(streams)}"
        raise RemoteProtocolError(f"{key}: the announced sum has {many}", hint=_HINT)
    released = book.released(key.plan, exchange, round_)
    if released is not None and node in result.survivors and released != result.transcript3:
        raise RemoteProtocolError(
            f"{key}: the announced sum is another than the one that this node helped to unmask", hint=_HINT
        )
    among = book.released_among(key.plan, exchange, round_) if released == result.transcript3 else None
    if among not in (None, result.survivors):
        raise other_survivors(key)
    return place


def other_survivors(key: ExchangeKey) -> RemoteProtocolError:
    """For a sum with a T3 that this node knows, said to be over other nodes than that T3 is of."""
    return RemoteProtocolError(
        f"{key}: the announced sum is said to be over other nodes than the one of the same transcript that this node "
        "took part in",
        hint=_HINT,
    )


def _check_members(result: SessionResult, key: ExchangeKey, manifest: CohortManifest, least: int) -> None:
    strangers = sorted(set(result.survivors) - {member.node for member in manifest.nodes})
    least = max(least, manifest.threshold.required)
    if strangers:
        raise RemoteProtocolError(f"{key}: the announced sum is over {strangers[0]}, not of the cohort", hint=_HINT)
    if len(result.survivors) < least:
        few = f"{counted(len(result.survivors), 'node')} (allowed: >= {least})"
        raise RemoteProtocolError(f"{key}: the announced sum is over {few}", hint=_HINT)
