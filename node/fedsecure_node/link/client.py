"""The node's side of the wire: every call that a coordinator offers, resumable where bytes are many."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import grpc

from fedsecure import __version__
from fedsecure.errors import RemoteProtocolError, WireError
from fedsecure.wire.codec import PROTOCOL
from fedsecure.wire.line import Line
from fedsecure.wire.status import from_rpc_error
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure.wire.v1.coordinator_pb2_grpc import CoordinatorStub
from fedsecure_node.egress import Cleared, ClearedVectors
from fedsecure_node.link.clock import ClockOffset
from fedsecure_node.link.queries import QueryClient
from fedsecure_node.link.transfer import Backoff, await_call, check_stop

__all__ = ["CoordinatorClient", "Greeting", "NotOnOffer"]

#: A control call is answered in this time or counts as lost (seconds); a long poll has its own wait on top.
CALL_S = 30.0
#: A transfer may take this long, plus what its bytes take at the slowest line we plan for (seconds, bytes a second).
TRANSFER_S = 60.0
SLOWEST_LINE = 32 * 1024
#: Tries of one transfer in a row without a single new byte; then the connection is made anew.
TRIES = 4
#: The coordinator's chunk size is taken within these bounds (bytes).
MIN_CHUNK, MAX_CHUNK = 4096, 3 << 20
MAX_REASON = 500


class NotOnOffer(RemoteProtocolError):
    """The coordinator gives a broadcast no longer: its exchange is over, or the node is not in its cohort any more."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the coordinator said in Hello. ``clock``: its clock against ours. Bounds are ours where its are absurd."""

    federation: str
    version: str
    clock: ClockOffset
    max_wait_ms: int
    chunk_bytes: int


class CoordinatorClient:
    """Calls over one channel, for one node. Each raises ``WireError`` when the line breaks, else the
    coordinator's error."""

    def __init__(self, channel: grpc.Channel, node_id: str, stop: threading.Event) -> None:
        self._line = Line(channel)
        self._stub: Any = self._line.stub(CoordinatorStub)
        self._node = node_id
        self._stop = stop
        self._chunk = 1 << 20

    def queries(self, stop: threading.Event) -> QueryClient:
        """The calls of routed prediction, over the same connection: for another thread, with a ``stop`` of its own.
        Raises ``WireError`` once it is closed."""
        return QueryClient(self._line, self._node, stop)

    def close(self) -> bool:
        """Close the channel within seconds; calls in flight end. Returns whether it is closed, rather than given up."""
        return self._line.close()

    def _call(self, method: Any, request: Any, *, timeout: float = CALL_S) -> Any:
        call = self._line.begin(lambda: method.future(request, timeout=timeout))
        return await_call(call, self._stop, within=timeout)

    def hello(self, *, federation: str, now_ms: Callable[[], int]) -> Greeting:
        """Greet; check protocol and federation. Raises ``RemoteProtocolError`` naming which differs."""
        sent = now_ms()
        reply = self._call(
            self._stub.Hello,
            pb.HelloRequest(node_id=self._node, version=__version__, protocol=PROTOCOL, unix_ms=sent),
        )
        if reply.protocol != PROTOCOL:
            raise RemoteProtocolError(
                f"the coordinator speaks protocol {reply.protocol}, this node {PROTOCOL}",
                hint="install versions of fedsecure that fit together",
            )
        if reply.federation != federation:
            raise RemoteProtocolError(
                f"the coordinator serves federation {reply.federation[:64]!r}, this node is of {federation!r}",
                hint="check coordinator and federation in node.toml",
            )
        self._chunk = min(max(reply.chunk_bytes, MIN_CHUNK), MAX_CHUNK)
        return Greeting(
            reply.federation,
            reply.version[:40],
            ClockOffset(reply.unix_ms - now_ms(), reply.unix_ms - sent),
            min(max(reply.max_wait_ms, 100), 60_000),
            self._chunk,
        )

    def list_plans(self) -> list[pb.OfferedPlan]:
        """Plans that are open to this node, and those it takes part in."""
        return list(self._call(self._stub.ListPlans, pb.ListPlansRequest(node_id=self._node)).plans)

    def join(self, digest: str) -> int:
        """Say that this node is ready for a plan. Returns the run's state."""
        reply = self._call(self._stub.Join, pb.JoinRequest(node_id=self._node, plan_digest=digest))
        return cast(int, reply.state)

    def refuse(self, digest: str, reason: str) -> None:
        """Say that this node takes no part (any more), and which rule or fault it is."""
        self._call(
            self._stub.Refuse, pb.RefuseRequest(node_id=self._node, plan_digest=digest, reason=reason[:MAX_REASON])
        )

    def cohort_manifest(self, digest: str) -> bytes:
        """The manifest (JSON, unchecked) of the cohort with this digest, as the coordinator has it."""
        request = pb.CohortManifestRequest(node_id=self._node, cohort_digest=digest)
        return cast(bytes, self._call(self._stub.CohortManifest, request).manifest)

    def next_work(self, digests: list[str], wait_ms: int, wake: Callable[[], bool]) -> pb.NextWorkReply | None:
        """Ask what to do; waits at most ``wait_ms``. ``None`` when ``wake`` said that something changed here first."""
        request = pb.NextWorkRequest(node_id=self._node, wait_ms=wait_ms, plan_digests=digests)
        timeout = CALL_S + wait_ms / 1000
        call = self._line.begin(lambda: self._stub.NextWork.future(request, timeout=timeout))
        return cast("pb.NextWorkReply | None", await_call(call, self._stop, wake, within=timeout))

    def download(self, digest: str, size: int) -> bytes:
        """A broadcast of ``size`` bytes; after a break it goes on where it stopped. Its digest is the
        caller's to check. Raises ``NotOnOffer`` when the coordinator gives it no longer."""
        held = bytearray()
        backoff, tries = Backoff(self._stop), 0
        while len(held) < size:
            before = len(held)
            try:
                self._download_from(digest, size, held)
            except WireError:
                tries = tries + 1 if len(held) == before else 1
                if tries >= TRIES:
                    raise
                backoff.wait()
        return bytes(held)

    def _download_from(self, digest: str, size: int, held: bytearray) -> None:
        request = pb.DownloadRequest(node_id=self._node, digest=digest, offset=len(held))
        call = self._line.begin(lambda: self._stub.Download(request, timeout=TRANSFER_S + size / SLOWEST_LINE))
        try:
            for chunk in call:
                check_stop(self._stop)
                held += chunk.data
                if len(held) > size:
                    raise RemoteProtocolError(f"broadcast {digest[:12]}: more bytes came than were announced ({size})")
        except grpc.RpcError as error:
            check_stop(self._stop)
            said = from_rpc_error(error)
            if type(said) is RemoteProtocolError and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise NotOnOffer(str(said), hint=said.hint) from None
            raise said from None
        finally:
            call.cancel()
        if len(held) < size:
            raise WireError(
                f"broadcast {digest[:12]}: ended after {len(held)} of {size} bytes", hint="it is tried again"
            )

    def upload(self, cleared: Cleared) -> None:
        """Send a cleared release from where the coordinator's copy ends; returns when all of it is acknowledged."""
        size = len(cleared.payload.data)
        backoff, tries, known = Backoff(self._stop), 0, -1
        while True:
            try:
                at = self._stored(cleared.key, size)
                if at is None:
                    return
                if at > known:
                    tries, known = 0, at
                if self._upload_from(cleared, at):
                    return
                failed = WireError("the coordinator did not take the whole release", hint="it is tried again")
            except WireError as error:
                failed = error
            tries += 1
            if tries >= TRIES:
                raise failed
            backoff.wait()

    def _stored(self, key: pb.UploadKey, size: int) -> int | None:
        """How many bytes of a release the coordinator has; ``None`` when it has acknowledged all of them."""
        reply = self._call(self._stub.UploadOffset, pb.UploadOffsetRequest(key=key))
        if reply.complete:
            return None
        if reply.offset > size:
            raise RemoteProtocolError(f"the coordinator claims {reply.offset} bytes of a release of {size}")
        return int(reply.offset)

    def _upload_from(self, cleared: Cleared, offset: int) -> bool:
        data = cleared.payload.data

        def messages() -> Iterator[pb.UploadMessage]:
            yield pb.UploadMessage(header=pb.UploadHeader(key=cleared.key, offset=offset))
            for at in range(offset, len(data), self._chunk):
                if self._stop.is_set():
                    return
                yield pb.UploadMessage(data=data[at : at + self._chunk])

        timeout = TRANSFER_S + len(data) / SLOWEST_LINE
        call = self._line.begin(lambda: self._stub.Upload.future(messages(), timeout=timeout))
        reply: Any = await_call(call, self._stop, within=timeout)
        return bool(reply.complete)

    def answer_leg(
        self, digest: str, session: str, leg: int, *, message: bytes | None = None, abort: bytes | None = None
    ) -> None:
        """Answer a leg of a masked sum's session, or (``abort``) leave the session. Idempotent by the bytes."""
        answer = pb.LegAnswer(
            node_id=self._node, plan_digest=digest, config_digest=session, leg=leg, message=message, abort=abort
        )
        self._call(self._stub.AnswerLeg, answer)

    def upload_masked(self, cleared: ClearedVectors, *, within: float) -> None:
        """Send masked vectors; returns when all of them are acknowledged. After a break they are sent again from the
        first byte on. ``within``: seconds after which nobody waits for them any more; the coordinator may let the nodes
        of a cohort send one after the other."""
        end, backoff, tries = time.monotonic() + within, Backoff(self._stop), 0
        while True:
            timeout = max(end - time.monotonic(), 1.0)
            start = partial(self._stub.UploadMasked.future, self._masked(cleared), timeout=timeout)
            try:
                await_call(self._line.begin(start), self._stop, within=timeout)
            except WireError:
                tries += 1
                if tries >= TRIES or time.monotonic() >= end:
                    raise
            else:
                return
            backoff.wait()

    def _masked(self, cleared: ClearedVectors) -> Iterator[pb.MaskedMessage]:
        yield pb.MaskedMessage(header=cleared.header)
        for chunk in cleared.vectors.chunks():
            if self._stop.is_set():
                return
            yield pb.MaskedMessage(chunk=chunk)
        yield pb.MaskedMessage(done=cleared.vectors.done)

    def __repr__(self) -> str:
        return f"CoordinatorClient({self._node})"
