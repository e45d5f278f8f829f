"""The gRPC service: checks who calls, translates messages, and decides nothing."""
# ruff: noqa: N802 - the names of the calls are those of the protocol

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from fedsecure import __version__
from fedsecure.errors import RemoteProtocolError
from fedsecure.wire.codec import PROTOCOL
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure.wire.v1.coordinator_pb2_grpc import CoordinatorServicer
from fedsecure_coordinator.masking.calls import MaskingCalls
from fedsecure_coordinator.service.calls import check_hello, guarded
from fedsecure_coordinator.service.desk import Desk, Work
from fedsecure_coordinator.service.gate import Gate
from fedsecure_coordinator.service.uploads import Uploads

__all__ = ["Servicer", "ServicerLimits"]

#: Uploads of one node at the same time; one more ends the oldest.
MAX_UPLOADS = 3
#: A node can be in no more runs at once than this.
MAX_RUNS = 1000
_STATES = {
    "JOINING": pb.RUN_STATE_JOINING,
    "EXCHANGE": pb.RUN_STATE_RUNNING,
    "AGGREGATING": pb.RUN_STATE_RUNNING,
    "COMPLETED": pb.RUN_STATE_COMPLETED,
    "ABORTED": pb.RUN_STATE_ABORTED,
}


@dataclass(frozen=True, slots=True)
class ServicerLimits:
    """See ``LimitSettings``; times in milliseconds."""

    federation: str
    max_wait_ms: int
    chunk_bytes: int
    clock_skew_ms: int


class Servicer(CoordinatorServicer):
    """Every call of ``coordinator.proto``. ``clock``: milliseconds since 1970."""

    def __init__(
        self,
        desk: Desk,
        uploads: Uploads,
        masking: MaskingCalls,
        gate: Gate,
        limits: ServicerLimits,
        *,
        clock: Callable[[], int],
    ) -> None:
        self._desk, self._uploads, self._masking = desk, uploads, masking
        self._gate, self._limits, self._clock = gate, limits, clock
        self._lock = threading.Lock()
        self._uploading: dict[str, deque[grpc.ServicerContext]] = {}

    def Hello(self, request: pb.HelloRequest, context: grpc.ServicerContext) -> pb.HelloReply:
        """Versions, clocks, federation."""

        def answer() -> pb.HelloReply:
            self._gate.require_node(context, request.node_id)
            now = self._clock()
            check_hello(f"node {request.node_id}", request.protocol, request.unix_ms - now, self._limits.clock_skew_ms)
            return pb.HelloReply(
                federation=self._limits.federation,
                version=__version__,
                protocol=PROTOCOL,
                unix_ms=now,
                max_wait_ms=self._limits.max_wait_ms,
                chunk_bytes=self._limits.chunk_bytes,
            )

        return guarded(context, answer)

    def ListPlans(self, request: pb.ListPlansRequest, context: grpc.ServicerContext) -> pb.ListPlansReply:
        """The plans open to this node, and those it takes part in."""

        def answer() -> pb.ListPlansReply:
            self._gate.require_node(context, request.node_id)
            plans = [
                pb.OfferedPlan(digest=row.digest, canonical=row.canonical, state=_STATES[row.phase], joined=joined)
                for row, joined in self._desk.offers(request.node_id)
            ]
            return pb.ListPlansReply(plans=plans)

        return guarded(context, answer)

    def Join(self, request: pb.JoinRequest, context: grpc.ServicerContext) -> pb.JoinReply:
        """The node is ready."""

        def answer() -> pb.JoinReply:
            self._gate.require_node(context, request.node_id)
            row = self._desk.join(request.node_id, request.plan_digest)
            return pb.JoinReply(state=_STATES[row.phase])

        return guarded(context, answer)

    def Refuse(self, request: pb.RefuseRequest, context: grpc.ServicerContext) -> pb.RefuseReply:
        """The node takes no part (any more)."""

        def answer() -> pb.RefuseReply:
            self._gate.require_node(context, request.node_id)
            self._desk.refuse(request.node_id, request.plan_digest, request.reason)
            return pb.RefuseReply()

        return guarded(context, answer)

    def NextWork(self, request: pb.NextWorkRequest, context: grpc.ServicerContext) -> pb.NextWorkReply:
        """What to do next; a bounded wait."""

        def answer() -> pb.NextWorkReply:
            self._gate.require_node(context, request.node_id)
            if len(request.plan_digests) > MAX_RUNS:
                raise RemoteProtocolError(f"{len(request.plan_digests)} runs are asked for (allowed: {MAX_RUNS})")
            context.add_callback(self._desk.wake)
            wait_s = min(request.wait_ms, self._limits.max_wait_ms) / 1000
            gone = lambda: not context.is_active()  # noqa: E731 - shorter than a def for one expression
            return _work(self._desk.next_work(request.node_id, list(request.plan_digests), wait_s, gone))

        return guarded(context, answer)

    def Download(self, request: pb.DownloadRequest, context: grpc.ServicerContext) -> Iterator[pb.Chunk]:
        """A broadcast, or what queries are answered with, from an offset."""

        def start() -> Iterator[bytes]:
            self._gate.require_node(context, request.node_id)
            return self._desk.broadcast(request.node_id, request.digest, request.offset, self._limits.chunk_bytes)

        pieces = guarded(context, start)
        while (piece := guarded(context, lambda: next(pieces, None))) is not None:
            yield pb.Chunk(data=piece)

    def UploadOffset(self, request: pb.UploadOffsetRequest, context: grpc.ServicerContext) -> pb.UploadOffsetReply:
        """How much of an upload is stored for good."""

        def answer() -> pb.UploadOffsetReply:
            self._gate.require_node(context, request.key.node_id)
            offset, complete = self._uploads.offset(request.key)
            return pb.UploadOffsetReply(offset=offset, complete=complete)

        return guarded(context, answer)

    def Upload(self, request_iterator: Iterator[pb.UploadMessage], context: grpc.ServicerContext) -> pb.UploadReply:
        """A contribution: one header, then its bytes."""

        def answer() -> pb.UploadReply:
            first = next(request_iterator, None)
            if first is None or first.WhichOneof("part") != "header":
                raise RemoteProtocolError("upload: does not begin with a header")
            key = first.header.key
            self._gate.require_node(context, key.node_id)
            with self._one_of_few(key.node_id, context):
                offset, complete = self._uploads.receive(key, first.header.offset, _pieces(request_iterator))
            return pb.UploadReply(offset=offset, complete=complete)

        return guarded(context, answer)

    def CohortManifest(
        self, request: pb.CohortManifestRequest, context: grpc.ServicerContext
    ) -> pb.CohortManifestReply:
        """The manifest of one of this node's cohorts."""

        def answer() -> pb.CohortManifestReply:
            self._gate.require_node(context, request.node_id)
            return pb.CohortManifestReply(manifest=self._masking.manifest(request.node_id, request.cohort_digest))

        return guarded(context, answer)

    def AnswerLeg(self, request: pb.LegAnswer, context: grpc.ServicerContext) -> pb.LegReply:
        """A node's answer to a leg of a session, or its abort."""

        def answer() -> pb.LegReply:
            self._gate.require_node(context, request.node_id)
            self._masking.answer(request)
            return pb.LegReply()

        return guarded(context, answer)

    def UploadMasked(self, request_iterator: Iterator[pb.MaskedMessage], context: grpc.ServicerContext) -> pb.LegReply:
        """A node's masked vectors: one header, then chunks and what ends them."""

        def answer() -> pb.LegReply:
            first = next(request_iterator, None)
            if first is None or first.WhichOneof("part") != "header":
                raise RemoteProtocolError("upload of masked vectors: does not begin with a header")
            self._gate.require_node(context, first.header.node_id)
            gone = lambda: not context.is_active()  # noqa: E731 - shorter than a def for one expression
            with self._one_of_few(first.header.node_id, context):
                self._masking.upload(first.header, request_iterator, gone)
            return pb.LegReply()

        return guarded(context, answer)

    def _one_of_few(self, node: str, context: grpc.ServicerContext) -> _Held:
        with self._lock:
            held = self._uploading.setdefault(node, deque())
            held.append(context)
            oldest = held[0] if len(held) > MAX_UPLOADS else None
        if oldest is not None:
            oldest.cancel()
        return _Held(self, node, context)

    def _release(self, node: str, context: grpc.ServicerContext) -> None:
        with self._lock:
            held = self._uploading.get(node)
            if held is not None and context in held:
                held.remove(context)
                if not held:
                    del self._uploading[node]


@dataclass(frozen=True, slots=True)
class _Held:
    """A node's place among its uploads, given back when the block ends."""

    servicer: Servicer
    node: str
    context: grpc.ServicerContext

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.servicer._release(self.node, self.context)


def _pieces(messages: Iterator[pb.UploadMessage]) -> Iterator[bytes]:
    for message in messages:
        if message.WhichOneof("part") != "data":
            raise RemoteProtocolError("upload: a second header")
        yield message.data


def _work(work: Work | None) -> pb.NextWorkReply:
    if work is None:
        return pb.NextWorkReply(nothing=pb.Nothing())
    if work.leg is not None:
        return pb.NextWorkReply(leg=work.leg)
    if work.ended is not None:
        ended = pb.Ended(plan_digest=work.ended.digest, state=_STATES[work.ended.phase], reason=work.ended.reason)
        if work.published is not None:
            ended.serving_digest, ended.serving_bytes = work.published.serving, work.published.serving_bytes
        return pb.NextWorkReply(ended=ended)
    assert work.slot is not None
    exchange = pb.Exchange(
        plan_digest=work.slot.digest,
        round=work.slot.round,
        attempt=work.slot.attempt,
        exchange=work.slot.exchange,
        broadcast_digest=work.broadcast,
        broadcast_bytes=work.broadcast_bytes,
        deadline_unix_ms=work.deadline_ms,
        cohort_digest=work.cohort,
        result=work.result,
    )
    return pb.NextWorkReply(exchange=exchange)
