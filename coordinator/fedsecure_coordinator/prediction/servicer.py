"""The gRPC service of routed prediction: checks who calls, translates messages, and decides nothing."""
# ruff: noqa: N802 - the names of the calls are those of the protocol

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import grpc
import numpy as np

from fedsecure import __version__
from fedsecure.errors import RemoteProtocolError
from fedsecure.wire.codec import PROTOCOL
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionServicer as Base
from fedsecure_coordinator.prediction.dispatcher import Dispatcher
from fedsecure_coordinator.prediction.messages import (
    MAX_QUERY_BYTES,
    check_answer,
    check_key,
    check_size,
    plain_record,
    refusal,
)
from fedsecure_coordinator.prediction.models import Model, Models
from fedsecure_coordinator.prediction.relay import Body, Reply
from fedsecure_coordinator.prediction.turnstile import Turnstile
from fedsecure_coordinator.quota import Quota
from fedsecure_coordinator.service.calls import check_hello, guarded
from fedsecure_coordinator.service.gate import Gate
from fedsecure_coordinator.service.servicer import ServicerLimits

__all__ = ["PredictionServicer"]

#: A node serves no more runs at once than this.
MAX_RUNS: Final = 1000
#: A list of models is cut, after the newest ones, at this size (bytes): gRPC takes messages of 4 MiB.
MAX_LIST_BYTES: Final = 3 << 20
_log = logging.getLogger("fedsecure.coordinator")
T = TypeVar("T")


class PredictionServicer(Base):
    """Every call of ``prediction.proto``. ``clock``: milliseconds since 1970."""

    def __init__(
        self,
        models: Models,
        dispatcher: Dispatcher,
        turnstile: Turnstile,
        gate: Gate,
        limits: ServicerLimits,
        *,
        clock: Callable[[], int],
    ) -> None:
        self._models, self._dispatcher, self._turnstile = models, dispatcher, turnstile
        self._gate, self._limits, self._clock = gate, limits, clock
        self._quota = Quota()

    # Analysts ---------------------------------------------------------------------------------------------------------
    def HelloAnalyst(self, request: pb.HelloAnalystRequest, context: grpc.ServicerContext) -> pb.HelloAnalystReply:
        """Versions, clocks, federation, bounds."""

        def answer() -> pb.HelloAnalystReply:
            now, limits = self._clock(), self._limits
            skew = request.unix_ms - now
            check_hello(f"analyst {request.analyst_id}", request.protocol, skew, limits.clock_skew_ms)
            return pb.HelloAnalystReply(
                federation=limits.federation,
                version=__version__,
                protocol=PROTOCOL,
                unix_ms=now,
                max_wait_ms=limits.max_wait_ms,
                max_query_bytes=MAX_QUERY_BYTES,
            )

        return self._for_analyst(context, request.analyst_id, answer)

    def ListModels(self, request: pb.ListModelsRequest, context: grpc.ServicerContext) -> pb.ListModelsReply:
        """The runs that answer queries, newest first, and the nodes that serve them."""

        def answer() -> pb.ListModelsReply:
            reply = pb.ListModelsReply()
            size = 0
            for model in self._models.all():
                served = self._described(model)
                size += served.ByteSize()
                if size > MAX_LIST_BYTES:
                    break
                reply.models.append(served)
            return reply

        return self._for_analyst(context, request.analyst_id, answer)

    def _described(self, model: Model) -> pb.ServedModel:
        nodes = self._dispatcher.serving(model.row.digest)
        return pb.ServedModel(
            plan_digest=model.row.digest,
            canonical=model.row.canonical,
            routing_digest=model.published.routing,
            routing_bytes=model.published.routing_bytes,
            nodes=[pb.ServingNode(node_id=node, reachable=there, key=key) for node, there, key in nodes],
        )

    def DownloadRouting(
        self, request: pb.DownloadRoutingRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.RoutingChunk]:
        """The routing parameters of a run, from an offset."""
        with contextlib.ExitStack() as inside:

            def start() -> Iterator[bytes]:
                self._gate.require_analyst(context, request.analyst_id)
                inside.enter_context(self._turnstile.entered(request.analyst_id))
                return self._models.routing(request.plan_digest, request.offset, self._limits.chunk_bytes)

            pieces = guarded(context, start)
            while (piece := guarded(context, lambda: next(pieces, None))) is not None:
                yield pb.RoutingChunk(data=piece)

    def AskSealed(self, request: pb.AskSealedRequest, context: grpc.ServicerContext) -> pb.AskSealedReply:
        """A query that only its node can read, and the answer that only its analyst can."""

        def answer() -> pb.AskSealedReply:
            model = self._models.get(request.plan_digest)
            if request.node_id not in model.nodes:
                raise RemoteProtocolError(
                    f"node {request.node_id[:64]!r} has no part in run {request.plan_digest[:12]}",
                    hint=f"its nodes are {', '.join(model.nodes[:20])}",
                )
            check_size("the sealed query", len(request.sealed))
            reply = self._ask(context, request.analyst_id, request.node_id, request, request.sealed)
            if isinstance(reply, pb.Refusal):
                raise refusal(request.node_id, reply)
            assert isinstance(reply, bytes)  # the relay takes no other answer to this form
            return pb.AskSealedReply(sealed=reply)

        return self._for_analyst(context, request.analyst_id, answer)

    def AskPlain(self, request: pb.AskPlainRequest, context: grpc.ServicerContext) -> pb.AskPlainReply:
        """A query that is routed here."""

        def answer() -> pb.AskPlainReply:
            run, analyst = request.plan_digest, request.analyst_id
            x = plain_record(request.query, run=run, analyst=analyst)
            nodes, scores = self._models.scores(run, x)
            if request.rank >= len(nodes):
                raise RemoteProtocolError(f"rank {request.rank}: run {run[:12]} has {len(nodes)} nodes, from rank 0 on")
            node = nodes[int(np.argsort(-scores[0], kind="stable")[request.rank])]
            given = self._ask(context, analyst, node, request, request.query)
            if isinstance(given, pb.Refusal):
                raise refusal(node, given)
            assert isinstance(given, pb.SignedStatement)  # the relay takes no other answer to this form
            reply = pb.AskPlainReply(node_id=node, answer=given)
            if request.scores:
                reply.nodes.extend(nodes)
                reply.scores.extend(float(score) for score in scores[0])
            return reply

        return self._for_analyst(context, request.analyst_id, answer)

    def _ask(
        self,
        context: grpc.ServicerContext,
        analyst: str,
        node: str,
        request: pb.AskSealedRequest | pb.AskPlainRequest,
        body: Body,
    ) -> Reply:
        context.add_callback(self._dispatcher.wake)
        wait_ms = min(request.wait_ms or self._limits.max_wait_ms, self._limits.max_wait_ms)
        gone = lambda: not context.is_active()  # noqa: E731 - shorter than a def for one expression
        return self._dispatcher.ask(analyst, node, request.plan_digest, body, wait_ms / 1000, gone)

    def _for_analyst(self, context: grpc.ServicerContext, analyst: str, answer: Callable[[], T]) -> T:
        def admitted() -> T:
            self._gate.require_analyst(context, analyst)
            with self._turnstile.entered(analyst):
                return answer()

        return guarded(context, admitted)

    # Nodes ------------------------------------------------------------------------------------------------------------
    def Serve(self, request: pb.ServeRequest, context: grpc.ServicerContext) -> pb.ServeReply:
        """The node's runs and key. A run that it cannot serve is left out, and the operator told; with none left that
        it can, it is refused."""

        def answer() -> pb.ServeReply:
            node, asked = request.node_id, list(request.plan_digests)
            self._gate.require_node(context, node)
            if len(asked) > MAX_RUNS:
                raise RemoteProtocolError(f"{len(asked)} runs are to be served (allowed: {MAX_RUNS})")
            check_key(request.key)
            runs = self._models.taken_part(node, asked)
            unknown = next((d for d in asked if d not in runs), None)
            if unknown is not None and not runs:
                raise RemoteProtocolError(
                    f"run {unknown[:12]!r} answers no queries here, or node {node} took no part in it",
                    hint="serve the runs whose end told what to keep",
                )
            if unknown is not None and self._quota.take((node, unknown)):
                _log.warning("node %s offers to serve run %r, which it cannot: left out", node, unknown[:12])
            self._dispatcher.serve(node, runs, request.key)
            return pb.ServeReply()

        return guarded(context, answer)

    def NextQuery(self, request: pb.NextQueryRequest, context: grpc.ServicerContext) -> pb.NextQueryReply:
        """The next query to answer; a bounded wait."""

        def answer() -> pb.NextQueryReply:
            self._gate.require_node(context, request.node_id)
            context.add_callback(self._dispatcher.wake)
            wait_s = min(request.wait_ms, self._limits.max_wait_ms) / 1000
            found = self._dispatcher.next(request.node_id, wait_s, lambda: not context.is_active())
            if found is None:
                return pb.NextQueryReply(none=pb.NoQuery())
            query, left_s = found
            relayed = pb.RelayedQuery(
                query_id=query.id,
                plan_digest=query.run,
                analyst_id=query.analyst,
                deadline_unix_ms=self._clock() + round(left_s * 1000),
            )
            if isinstance(query.body, bytes):
                relayed.sealed = query.body
            else:
                relayed.plain.CopyFrom(query.body)
            return pb.NextQueryReply(query=relayed)

        return guarded(context, answer)

    def Answer(self, request: pb.AnswerRequest, context: grpc.ServicerContext) -> pb.AnswerReply:
        """The answer to a query, or why there is none."""

        def answer() -> pb.AnswerReply:
            self._gate.require_node(context, request.node_id)
            self._dispatcher.answer(request.node_id, request.query_id, _reply(request))
            return pb.AnswerReply()

        return guarded(context, answer)


def _reply(request: pb.AnswerRequest) -> Reply:
    """What a node replies, of a size and form that can be. Raises ``RemoteProtocolError``."""
    form = request.WhichOneof("form")
    if form == "signed":
        check_answer(request.signed)
        return request.signed
    reply: bytes | pb.Refusal = request.refusal if form == "refusal" else request.sealed
    check_size("the answer", len(reply) if isinstance(reply, bytes) else reply.ByteSize())
    return reply
