"""Who is asked about which record: by the routing scores, in parts, and whom else when a node cannot be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from fedsecure.errors import DataError, NodeUnreachable, RemoteProtocolError
from fedsecure.method import Prediction
from fedsecure.prediction.padding import BLOCK
from fedsecure.prediction.queries import QUERY_RECORDS
from fedsecure.tensors import Array

__all__ = ["Answer", "Fallback", "ask_by_scores", "check_scores", "records_a_query"]

#: What happens when the best-matched node cannot be reached: an error, or the next best is asked.
Fallback = Literal["refuse", "next"]
#: Bytes of a query besides its records, generously: certificate, signature, seal around the padded body; and names and
#: tensor header inside it.
OUTER_OVERHEAD: Final = 2048
INNER_OVERHEAD: Final = 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What ``node`` says about one record. ``probabilities``: float32 (K,); ``components``: float32 (C,), the posterior
    of the node's mixture components. ``best``: the best-matched node, which is ``node`` itself unless it could not be
    reached. ``scores``: node -> log P(node | record) up to a constant, when they are known."""

    node: str
    best: str
    probabilities: Array
    components: Array
    scores: Mapping[str, float] | None = None

    @property
    def fallback(self) -> bool:
        """Whether another than the best-matched node answered."""
        return self.node != self.best


def check_scores(scores: Array, records: int, nodes: Sequence[str]) -> Array:
    """``scores`` when they are float64 (records, nodes) and finite. Raises ``RemoteProtocolError``: the parameters that
    somebody sent give no scores."""
    if scores.shape != (records, len(nodes)) or not np.isfinite(scores).all():
        raise RemoteProtocolError(
            f"routing: scores of shape {list(scores.shape)}, or not finite, where {records} x {len(nodes)} is due",
            hint="the model is at fault: ask another run",
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
    *,
    part: int,
    fallback: Fallback,
) -> list[Answer]:
    """Have each record answered by its best-matched node; one answer a record, in order.

    ``scores``: float64 (n, m); ``ask(node, rows)`` answers the records ``rows`` (int64 indices, at most ``part``).
    Raises what ``ask`` raises; with ``fallback="next"`` a
    ``NodeUnreachable`` sends its records to their next-best node, and is raised only when there is none left.
    """
    order = np.argsort(-scores, axis=1, kind="stable")  # (n, m), best first
    rank = np.zeros(len(scores), dtype=np.int64)  # (n,)
    answers: dict[int, Answer] = {}
    lost: dict[str, NodeUnreachable] = {}
    while len(answers) < len(scores):
        open_rows = np.asarray([row for row in range(len(scores)) if row not in answers], dtype=np.int64)
        for node, rows in _parts(order, rank, open_rows, nodes, part):
            try:
                if node in lost:
                    raise lost[node]
                given = ask(node, rows)
            except NodeUnreachable as error:
                lost[node] = error
                _give_up(error, rank, rows, len(nodes), fallback)
                continue
            for i, row in enumerate(rows.tolist()):
                answers[row] = Answer(
                    node,
                    nodes[order[row, 0]],
                    given.probabilities[i],
                    given.components[i],
                    dict(zip(nodes, scores[row].tolist(), strict=True)),
                )
    return [answers[row] for row in range(len(scores))]


def _parts(order: Array, rank: Array, rows: Array, nodes: Sequence[str], part: int) -> Iterator[tuple[str, Array]]:
    """(node, at most ``part`` of the ``rows`` that are for it), nodes in their order."""
    due = order[rows, rank[rows]]  # (rows,)
    for index in np.unique(due).tolist():
        mine = rows[due == index]
        for start in range(0, len(mine), part):
            yield nodes[index], mine[start : start + part]


def _give_up(error: NodeUnreachable, rank: Array, rows: Array, nodes: int, fallback: Fallback) -> None:
    """Send ``rows`` to their next-best node, or raise ``error`` when that is not wanted or there is none."""
    if fallback == "refuse":
        raise NodeUnreachable(str(error), hint=error.hint or "try again later, or take --fallback next") from None
    rank[rows] += 1
    if (rank[rows] >= nodes).any():
        raise NodeUnreachable(f"no node can be reached; at last: {error}", hint="try again later") from None
