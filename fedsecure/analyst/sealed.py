"""The sealed form: routed here, sealed to the node's key, so that the coordinator learns only who is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from google.protobuf.message import DecodeError

from fedsecure.analyst.client import AnalystClient
from fedsecure.analyst.models import Model
from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.crypto.statements import Signer
from fedsecure.errors import NodeUnreachable, RemoteProtocolError
from fedsecure.method import Prediction
from fedsecure.prediction.answers import decode_outcome
from fedsecure.prediction.keys import NodeKey, read_node_key
from fedsecure.prediction.queries import answer_info, make_query, query_info
from fedsecure.tensors import Array
from fedsecure.wire.credentials import TlsFiles
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["Asking", "SealedLine"]


@dataclass(frozen=True, slots=True)
class Asking:
    """What asking takes in both forms. ``clock_ms``: the coordinator's clock minus ours, which queries are dated by."""

    client: AnalystClient
    signer: Signer
    analyst: str
    federation: str
    files: TlsFiles = field(repr=False)
    clock_ms: int
    wait_ms: int

    def now_ms(self) -> int:
        """The coordinator's clock (milliseconds since 1970-01-01 UTC)."""
        return time.time_ns() // 1_000_000 + self.clock_ms


class SealedLine:
    """Asks the nodes of one model. Remembers keys that were checked; asks for them again when one does not fit."""

    def __init__(self, asking: Asking, model: Model) -> None:
        self._asking, self._model = asking, model
        self._nodes = {node.node_id: node for node in model.served.nodes}
        self._keys: dict[str, NodeKey] = {}

    def ask(self, node: str, x: Array) -> Prediction:
        """``node``'s answer about records ``x``, float32 (n, *shape).

        Raises ``NodeUnreachable`` naming the node; what the node refuses with; ``CertificateError`` or
        ``RemoteProtocolError`` for a key that is not the node's, or an answer that is none.
        """
        key = self._key(node)
        try:
            return self._exchange(node, key, x)
        except _NotOpened as refused:
            self._refresh()  # the node may have a new key: it was restarted, or the old one ran out
            if node not in self._nodes or (renewed := self._key(node)).public == key.public:
                raise refused.error from None
        try:
            return self._exchange(node, renewed, x)
        except _NotOpened as refused:
            raise refused.error from None

    def _exchange(self, node: str, key: NodeKey, x: Array) -> Prediction:
        asking, run = self._asking, self._model.run
        reply = SealingKey.generate()
        asked = make_query(
            asking.signer,
            run=run,
            node=node,
            analyst=asking.analyst,
            x=x,
            now_ms=asking.now_ms(),
            reply_public=reply.public,
        )
        sealed = seal(key.public, asked.statement.SerializeToString(), query_info(run, node))
        try:
            answer = asking.client.ask_sealed(run, node, sealed, asking.wait_ms)
        except RemoteProtocolError as error:
            raise _NotOpened(error) from None
        try:
            outcome = pb.Outcome.FromString(reply.open(answer, answer_info(asked.digest)))
        except (RemoteProtocolError, DecodeError):
            raise RemoteProtocolError(
                f"node {node}: its answer is not sealed to the key in the query, or is malformed",
                hint="the answer was not made for this query: the node or the coordinator is at fault",
            ) from None
        classes = len(self._model.plan.task.classes)
        return decode_outcome(outcome, node=node, digest=asked.digest, records=len(x), classes=classes)

    def _key(self, node: str) -> NodeKey:
        """The node's key, checked against its certificate. Raises ``NodeUnreachable`` when it does not ask for queries,
        now and after a second look."""
        if not self._reachable(node):
            self._refresh()
        if not self._reachable(node):
            raise NodeUnreachable(
                f"node {node} cannot be reached: it does not serve run {self._model.run[:12]} at this moment"
            )
        if node not in self._keys:
            files = self._asking.files
            self._keys[node] = read_node_key(
                self._nodes[node].key,
                ca_pem=files.ca_pem(),
                crl_pem=files.crl_pem(),
                federation=self._asking.federation,
                node=node,
                now=datetime.now(UTC),
            )
        return self._keys[node]

    def _reachable(self, node: str) -> bool:
        return node in self._nodes and self._nodes[node].reachable

    def _refresh(self) -> None:
        """Ask again who serves the run, with which keys."""
        self._keys.clear()
        served = [m for m in self._asking.client.models() if m.plan_digest == self._model.run]
        self._nodes = {node.node_id: node for model in served for node in model.nodes}


class _NotOpened(Exception):
    """The node, or the coordinator, did not take the query; ``error`` is why."""

    def __init__(self, error: RemoteProtocolError) -> None:
        super().__init__(str(error))
        self.error = error
