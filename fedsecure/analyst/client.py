"""The analyst's calls to the coordinator, by name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import grpc

from fedsecure import __version__
from fedsecure.analyst.settings import CONFIG_NAME, AnalystSettings
from fedsecure.errors import FedSecureError, RemoteProtocolError, WireError
from fedsecure.wire.clock import clock_skew
from fedsecure.wire.codec import PROTOCOL
from fedsecure.wire.credentials import TlsFiles, own_participant
from fedsecure.wire.dialling import dial
from fedsecure.wire.line import Line
from fedsecure.wire.status import from_rpc_error
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionStub

__all__ = ["AnalystClient", "Greeting", "connected", "tls_files"]

#: A call is answered in this time or counts as lost (seconds); the wait for a node's answer comes on top.
CALL_S: Final = 30.0
#: A transfer may take this long, plus what its bytes take at the slowest line we plan for (seconds, bytes a second).
TRANSFER_S: Final = 60.0
SLOWEST_LINE: Final = 32 * 1024
#: Tries of a transfer in a row without a single new byte, and the pause between (seconds).
TRIES: Final = 3
PAUSE_S: Final = 1.0
#: What a daemon is told of a line that broke; an analyst tries again by hand.
_RETRIED: Final = "it is tried again"
#: The coordinator's bounds are taken within these (milliseconds, bytes).
MIN_WAIT_MS, MAX_WAIT_MS = 100, 600_000
MIN_QUERY_BYTES, MAX_QUERY_BYTES = 8192, 16 << 20


@dataclass(frozen=True, slots=True)
class Greeting:
    """What the coordinator said in Hello. ``clock_ms``: its clock minus ours. Bounds are ours where its are absurd."""

    clock_ms: int
    max_wait_ms: int
    max_query_bytes: int


class AnalystClient:
    """Calls over one channel, for one analyst. Each raises ``WireError`` when the line breaks, else the coordinator's
    error."""

    def __init__(self, line: Line, analyst: str) -> None:
        self._line = line
        self._stub: Any = line.stub(PredictionStub)
        self._analyst = analyst

    def hello(self, federation: str) -> Greeting:
        """Greet; check protocol, federation and clocks. Raises ``RemoteProtocolError`` or ``CertificateError``."""
        sent = _now_ms()
        request = pb.HelloAnalystRequest(analyst_id=self._analyst, version=__version__, protocol=PROTOCOL, unix_ms=sent)
        reply = self._call(self._stub.HelloAnalyst, request)
        if reply.protocol != PROTOCOL:
            raise RemoteProtocolError(
                f"the coordinator speaks protocol {reply.protocol}, this analyst {PROTOCOL}",
                hint="install versions of fedsecure that fit together",
            )
        if reply.federation != federation:
            raise RemoteProtocolError(
                f"the coordinator serves federation {reply.federation[:64]!r}, this analyst is of {federation!r}",
                hint="check coordinator and federation in analyst.toml",
            )
        middle = (sent + _now_ms()) // 2
        clock_skew(middle, reply.unix_ms, peer="the coordinator")
        return Greeting(
            reply.unix_ms - middle,
            min(max(reply.max_wait_ms, MIN_WAIT_MS), MAX_WAIT_MS),
            min(max(reply.max_query_bytes, MIN_QUERY_BYTES), MAX_QUERY_BYTES),
        )

    def models(self) -> list[pb.ServedModel]:
        """The runs whose model answers queries, newest first."""
        return list(self._call(self._stub.ListModels, pb.ListModelsRequest(analyst_id=self._analyst)).models)

    def routing(self, run: str, size: int) -> bytes:
        """The ``size`` bytes of a run's routing parameters; after a break it goes on where it stopped. Their digest is
        the caller's to check."""
        held, tries = bytearray(), 0
        while len(held) < size:
            before = len(held)
            try:
                self._routing_from(run, size, held)
            except WireError:
                tries = tries + 1 if len(held) == before else 1
                if tries >= TRIES:
                    raise
                time.sleep(PAUSE_S)
        return bytes(held)

    def _routing_from(self, run: str, size: int, held: bytearray) -> None:
        request = pb.DownloadRoutingRequest(analyst_id=self._analyst, plan_digest=run, offset=len(held))
        timeout = TRANSFER_S + size / SLOWEST_LINE
        call = self._line.begin(lambda: self._stub.DownloadRouting(request, timeout=timeout))
        try:
            for chunk in call:
                held += chunk.data
                if len(held) > size:
                    raise RemoteProtocolError(f"routing parameters of run {run[:12]}: more bytes came than announced")
        except grpc.RpcError as error:
            raise _in_words(error) from None
        finally:
            call.cancel()
        if len(held) < size:
            raise WireError(
                f"routing parameters of run {run[:12]}: ended after {len(held)} of {size} bytes", hint="try again"
            )

    def ask_sealed(self, run: str, node: str, sealed: bytes, wait_ms: int) -> bytes:
        """The sealed answer to a sealed query. Raises ``NodeUnreachable`` when the node gives none in time, and
        ``RemoteProtocolError`` when it cannot open the query."""
        request = pb.AskSealedRequest(
            analyst_id=self._analyst, plan_digest=run, node_id=node, sealed=sealed, wait_ms=wait_ms
        )
        reply = self._call(self._stub.AskSealed, request, timeout=CALL_S + wait_ms / 1000)
        return bytes(reply.sealed)

    def ask_plain(
        self, run: str, query: pb.SignedStatement, *, rank: int, scores: bool, wait_ms: int
    ) -> pb.AskPlainReply:
        """Who answered a query that the coordinator routes, and what. Raises ``NodeUnreachable`` as ``ask_sealed``."""
        request = pb.AskPlainRequest(
            analyst_id=self._analyst, plan_digest=run, query=query, rank=rank, scores=scores, wait_ms=wait_ms
        )
        reply: pb.AskPlainReply = self._call(self._stub.AskPlain, request, timeout=CALL_S + wait_ms / 1000)
        return reply

    def _call(self, method: Any, request: Any, *, timeout: float = CALL_S) -> Any:
        try:
            return self._line.begin(lambda: method(request, timeout=timeout))
        except grpc.RpcError as error:
            raise _in_words(error) from None


def _in_words(error: grpc.RpcError) -> FedSecureError:
    """The coordinator's error, or the line's. Nothing is tried again here that a daemon would."""
    told = from_rpc_error(error)
    return type(told)(str(told), hint="try again") if told.hint == _RETRIED else told


def tls_files(settings: AnalystSettings) -> TlsFiles:
    """The files of the analyst's certificate."""
    tls = settings.tls
    return TlsFiles(tls.key, tls.cert, tls.ca, tls.crl)


@contextmanager
def connected(settings: AnalystSettings) -> Iterator[tuple[AnalystClient, Greeting]]:
    """An open connection on which both have greeted. Raises ``CertificateError``, ``ConfigError`` or ``WireError``
    naming the cause (see ``fedsecure.wire.preflight``)."""
    files, now = tls_files(settings), datetime.now(UTC)
    own_participant(
        files,
        role="analyst",
        name=settings.analyst,
        federation=settings.federation,
        now=now,
        where=CONFIG_NAME,
    )
    channel, _ = dial(settings.coordinator, files, federation=settings.federation, now=now)
    with Line(channel) as line:
        client = AnalystClient(line, settings.analyst)
        yield client, client.hello(settings.federation)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
