"""Who is asked about which record: by the routing scores, in parts, and whom else when a node cannot be reached.

No fault of one node or one record ends a batch: what was answered is kept, and each of the other records has its error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from fedsecure.analyst.batch import Answer, Batch
from fedsecure.errors import (
    DataError,
    FedSecureError,
    NodeUnreachable,
    PolicyError,
    RemoteProtocolError,
    WireError,
)
from fedsecure.method import Prediction
from fedsecure.prediction.padding import BLOCK
from fedsecure.prediction.queries import QUERY_RECORDS
from fedsecure.tensors import Array

__all__ = ["Fallback", "ask_by_scores", "check_scores", "none_left", "not_asked_elsewhere", "records_a_query"]

#: What happens when the best-matched node cannot be reached: its records stay open, or the next best is asked.
Fallback = Literal["refuse", "next"]
#: Bytes of a query besides its records, generously: certificate, signature, seal around the padded body; and names and
#: tensor header inside it.
OUTER_OVERHEAD: Final = 2048
INNER_OVERHEAD: Final = 1024
#: The rule of a node's policy by which a query is refused that smaller ones would pass.
SIZE_RULE: Final = "prediction.max_records_per_query"


def check_scores(scores: Array, names: Sequence[str], nodes: Sequence[str]) -> Array:
    """``scores`` when they are float64 (records, nodes) and finite; ``names`` are those of the records.

    Raises ``RemoteProtocolError``: the parameters that somebody sent give no scores; ``DataError`` naming the record
    whose scores are not finite.
    """
    if scores.shape != (len(names), len(nodes)):
        raise RemoteProtocolError(
            f"routing: scores of shape {list(scores.shape)} where {len(names)} x {len(nodes)} are due",
            hint="the model is at fault: ask another run",
        )
    if not (finite := np.isfinite(scores).all(axis=1)).all():
        raise DataError(
            f"{names[int(np.argmin(finite))]}: its routing scores are not finite",
            hint="does the record hold a value far beyond those that the model was trained on?",
        )
    return scores


def records_a_query(record_bytes: int, max_query_bytes: int) -> int:
    """How many records go into one query. Raises ``DataError`` when not even one fits."""
    body = (max_query_bytes - OUTER_OVERHEAD) // BLOCK * BLOCK
    fit = (body - INNER_OVERHEAD) // record_bytes
    if fit < 1:
        raise DataError(f"a record of {record_bytes} bytes does not fit into a query of {max_query_bytes} bytes")
    return min(fit, QUERY_RECORDS)


def ask_by_scores(
    scores: Array,
    nodes: Sequence[str],
    ask: Callable[[str, Array], Prediction],
    batch: Batch,
    *,
    part: int,
    fallback: Fallback,
) -> None:
    """Have each record answered by its best-matched node, until ``batch`` has an answer or an error for every one.

    ``scores``: float64 (n, m); ``ask(node, rows)`` answers the records ``rows`` (int64 indices, at most ``part``), and
    what it raises is taken by its kind:

    - ``DataError``: these records have it; the node is asked on.
    - ``WireError``: the coordinator is gone, and the batch stops.
    - A query too large for the node's policy: it is asked in halves.
    - Everything else: the node is not asked again in this batch. Its records have the error, but for a
      ``NodeUnreachable`` with ``fallback="next"``, which sends them to their next-best node.
    """
    order = np.argsort(-scores, axis=1, kind="stable")  # (n, m), best first
    rank = np.zeros(len(scores), dtype=np.int64)  # (n,)
    most = dict.fromkeys(nodes, part)
    given_up: dict[str, FedSecureError] = {}
    while len(due := batch.open()):
        whom = order[due, rank[due]]  # (due,)
        index = int(whom.min())
        node, mine = nodes[index], due[whom == index]
        rows = mine[: most[node]]
        try:
            if node in given_up:
                raise given_up[node]
            given = ask(node, rows)
        except DataError as error:
            batch.fail(rows, error)
        except WireError as error:
            batch.stop(error)
        except FedSecureError as error:
            if node not in given_up and len(rows) > 1 and _is_too_large(error, node):
                most[node] = len(rows) // 2
                continue
            given_up[node] = error
            _give_up(error, batch, mine, rank, len(nodes), fallback)
        else:
            batch.take(rows, _answers(given, node, rows, order, nodes, scores))


def _answers(
    given: Prediction, node: str, rows: Array, order: Array, nodes: Sequence[str], scores: Array
) -> list[Answer]:
    """``node``'s answers about ``rows``, each beside who would have been the best."""
    return [
        Answer(
            node,
            nodes[order[row, 0]],
            given.probabilities[i],
            given.components[i],
            dict(zip(nodes, scores[row].tolist(), strict=True)),
        )
        for i, row in enumerate(rows.tolist())
    ]


def _is_too_large(error: FedSecureError, node: str) -> bool:
    return isinstance(error, PolicyError) and str(error).startswith(f"node {node}: {SIZE_RULE}:")


def _give_up(error: FedSecureError, batch: Batch, rows: Array, rank: Array, nodes: int, fallback: Fallback) -> None:
    """Send ``rows`` to their next-best node if that is wanted and helps; else, or where there is none, they fail."""
    if not isinstance(error, NodeUnreachable):
        batch.fail(rows, error)
    elif fallback == "refuse":
        batch.fail(rows, not_asked_elsewhere(error))
    else:
        rank[rows] += 1
        batch.fail(rows[rank[rows] >= nodes], none_left(error))


def not_asked_elsewhere(error: NodeUnreachable) -> NodeUnreachable:
    """``error`` with the hint what to do where the next best is not to be asked."""
    return NodeUnreachable(str(error), hint=error.hint or "try again later, or take --fallback next")


def none_left(error: NodeUnreachable) -> NodeUnreachable:
    """The error where the next best was asked until there was none left; ``error`` is the last."""
    return NodeUnreachable(f"no node can be reached; at last: {error}", hint="try again later")
