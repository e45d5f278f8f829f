"""The calls of secure aggregation as the service hands them over, once it knows who calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedsecure.errors import RemoteProtocolError
from fedsecure.secagg.protocol.messages import MAX_LEG_BYTES
from fedsecure.wire.v1 import coordinator_pb2 as pb
from fedsecure_coordinator.cohorts.manifests import Cohorts
from fedsecure_coordinator.masking.sessions import Sessions

__all__ = ["MaskingCalls"]


class MaskingCalls:
    """Every method raises ``RemoteProtocolError`` for what is not the caller's or not due, ``SecAggError`` for a
    message at fault."""

    def __init__(self, sessions: Sessions, cohorts: Cohorts) -> None:
        self._sessions, self._cohorts = sessions, cohorts

    def manifest(self, node: str, digest: str) -> bytes:
        """The manifest of this digest, as JSON, for a node that is in it."""
        found = self._cohorts.by_digest(digest)
        if found is None or node not in {member.node for member in found.nodes}:
            raise RemoteProtocolError(
                f"this coordinator has no manifest {digest[:16]!r} that names node {node}",
                hint="the coordinator's operator can add it: fedsecure coordinator cohort add FILE",
            )
        return found.model_dump_json().encode()

    def answer(self, request: pb.LegAnswer) -> None:
        """A node's answer to a leg, or its abort."""
        session = self._sessions.session(request.plan_digest, request.config_digest, request.node_id)
        if request.WhichOneof("answer") == "abort":
            session.abort(request.node_id, request.abort)
            return
        if len(request.message) > MAX_LEG_BYTES:
            raise RemoteProtocolError(f"an answer of {len(request.message)} bytes (allowed: <= {MAX_LEG_BYTES})")
        session.answer(request.node_id, request.leg, request.message)

    def upload(self, header: pb.MaskedHeader, messages: Iterable[pb.MaskedMessage], gone: Callable[[], bool]) -> None:
        """A node's masked vectors, after their header."""
        session = self._sessions.session(header.plan_digest, header.config_digest, header.node_id)
        self._sessions.count(session, header.node_id, session.upload(header.node_id, messages, gone))
