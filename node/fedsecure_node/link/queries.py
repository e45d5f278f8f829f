"""The node's side of routed prediction on the wire: say what is served, ask for the next query, answer it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from fedsecure.errors import RemoteProtocolError
from fedsecure.wire.line import Line
from fedsecure.wire.v1 import prediction_pb2 as pb
from fedsecure.wire.v1.prediction_pb2_grpc import PredictionStub
from fedsecure_node.link.transfer import await_call

__all__ = ["QueryClient"]

#: A call is answered in this time or counts as lost (seconds); a long poll has its own wait on top.
CALL_S = 30.0


class QueryClient:
    """Calls of one node over a line that others use as well. Each, and making one of it, raises ``WireError`` when the
    line breaks or the channel was closed, else the coordinator's error."""

    def __init__(self, line: Line, node_id: str, stop: threading.Event) -> None:
        self._line = line
        self._stub: Any = line.stub(PredictionStub)
        self._node = node_id
        self._stop = stop

    def _call(
        self, method: Any, request: Any, *, timeout: float = CALL_S, wake: Callable[[], bool] | None = None
    ) -> Any:
        call = self._line.begin(lambda: method.future(request, timeout=timeout))
        return await_call(call, self._stop, wake, within=timeout)

    def serve(self, digests: Sequence[str], key: pb.SignedStatement) -> None:
        """Say which runs this node answers queries about, and the key to seal them to."""
        self._call(self._stub.Serve, pb.ServeRequest(node_id=self._node, plan_digests=digests, key=key))

    def next_query(self, wait_ms: int, wake: Callable[[], bool]) -> pb.RelayedQuery | None:
        """The next query; waits at most ``wait_ms``. ``None`` when none came, or ``wake`` said yes first."""
        request = pb.NextQueryRequest(node_id=self._node, wait_ms=wait_ms)
        reply = self._call(self._stub.NextQuery, request, timeout=CALL_S + wait_ms / 1000, wake=wake)
        if reply is None or reply.WhichOneof("what") in (None, "none"):
            return None
        query: pb.RelayedQuery = reply.query
        if query.WhichOneof("form") is None:
            raise RemoteProtocolError("the coordinator relays a query without content")
        return query

    def answer(self, request: pb.AnswerRequest) -> None:
        """Hand in an answer. Raises ``RemoteProtocolError`` when nobody waits for it any more."""
        self._call(self._stub.Answer, request)

    def __repr__(self) -> str:
        return f"QueryClient({self._node})"
