"""The plain form, for thin clients: the coordinator reads each query and routes it; the node signs its answer."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from fedsecure.analyst.asking import Answer, Fallback
from fedsecure.analyst.models import Model
from fedsecure.analyst.sealed import Asking
from fedsecure.errors import NodeUnreachable, RemoteProtocolError
from fedsecure.prediction.answers import decode_outcome
from fedsecure.prediction.queries import make_query
from fedsecure.prediction.signed import read_answer
from fedsecure.tensors import Array
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["ask_plain"]


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
                raise NodeUnreachable(
                    str(error), hint=error.hint or "try again later, or take --fallback next"
                ) from None
            if rank == last:
                raise NodeUnreachable(f"no node can be reached; at last: {error}", hint="try again later") from None
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
