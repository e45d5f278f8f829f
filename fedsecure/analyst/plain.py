"""The plain form, for thin clients: the coordinator reads each query and routes it; the node signs its answer."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from fedsecure.analyst.asking import Fallback, none_left, not_asked_elsewhere
from fedsecure.analyst.batch import Answer, Batch
from fedsecure.analyst.models import Model
from fedsecure.analyst.sealed import Asking
from fedsecure.errors import DataError, FedSecureError, NodeUnreachable, RemoteProtocolError, WireError
from fedsecure.prediction.answers import decode_outcome
from fedsecure.prediction.queries import make_query
from fedsecure.prediction.signed import read_answer
from fedsecure.tensors import Array
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["ask_by_coordinator", "ask_plain"]


def ask_by_coordinator(
    asking: Asking, model: Model, x: Array, batch: Batch, *, fallback: Fallback, scores: bool
) -> None:
    """Have each record of ``x``, float32 (n, *shape), answered by whom the coordinator finds best matched, until
    ``batch`` has an answer or an error for every one.

    Whom a record is for is not known before it is sent, so a node that refuses or is away is met again; once every node
    of the run refused, nobody is asked any more. A ``WireError`` stops the batch.
    """
    refusing: set[str] = set()
    while len(rows := batch.open()):
        row = rows[:1]
        try:
            batch.take(row, [ask_plain(asking, model, x[row], fallback=fallback, scores=scores)])
        except WireError as error:
            batch.stop(error)
        except FedSecureError as error:
            batch.fail(row, error)
            if not isinstance(error, DataError):
                refusing |= {node for node in model.nodes if str(error).startswith(f"node {node}: ")}
            if refusing == {*model.nodes}:
                batch.stop(error)


def ask_plain(asking: Asking, model: Model, x: Array, *, fallback: Fallback, scores: bool) -> Answer:
    """The answer about one record ``x``, float32 (1, *shape), of whom the coordinator finds best matched.

    Raises as ``SealedLine.ask``. With ``fallback="next"`` the next best is asked, and the scores with it: they tell who
    would have been the best.
    """
    last = len(model.nodes) - 1
    for rank in range(last + 1):
        try:
            return _ask(asking, model, x, rank=rank, scores=scores or rank > 0)
        except NodeUnreachable as error:
            if fallback == "refuse":
                raise not_asked_elsewhere(error) from None
            if rank == last:
                raise none_left(error) from None
    raise RemoteProtocolError(f"run {model.run[:12]}: its plan names no nodes")


def _ask(asking: Asking, model: Model, x: Array, *, rank: int, scores: bool) -> Answer:
    asked = make_query(
        asking.signer,
        run=model.run,
        node="",
        analyst=asking.analyst,
        x=x,
        now_ms=asking.now_ms(),
        reply_public=b"",
    )
    reply = asking.client.ask_plain(model.run, asked.statement, rank=rank, scores=scores, wait_ms=asking.wait_ms)
    if reply.node_id not in model.nodes:
        raise RemoteProtocolError(f"an answer of {reply.node_id[:64]!r}, who is no node of run {model.run[:12]}")
    outcome = read_answer(
        reply.answer,
        ca_pem=asking.files.ca_pem(),
        crl_pem=asking.files.crl_pem(),
        federation=asking.federation,
        node=reply.node_id,
        digest=asked.digest,
        now=datetime.now(UTC),
    )
    given = decode_outcome(
        outcome, node=reply.node_id, digest=asked.digest, records=1, classes=len(model.plan.task.classes)
    )
    told = _scores(reply, model) if scores else None
    best = max(told, key=lambda node: told[node]) if told else reply.node_id
    return Answer(reply.node_id, best, given.probabilities[0], given.components[0], told)


def _scores(reply: pb.AskPlainReply, model: Model) -> dict[str, float]:
    if tuple(reply.nodes) != model.nodes or len(reply.scores) != len(reply.nodes):
        raise RemoteProtocolError(f"run {model.run[:12]}: scores of other nodes than its plan names")
    if not all(math.isfinite(score) for score in reply.scores):
        raise RemoteProtocolError(f"run {model.run[:12]}: scores that are not finite")
    return dict(zip(reply.nodes, reply.scores, strict=True))
