"""A node's key for queries: X25519, in the node's memory alone, bound to its certified identity by a signature.

The key of the certificate signs and is never used for key agreement; queries are sealed to a key that lives no longer
than the daemon, so that yesterday's queries cannot be opened with what lies on today's disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from google.protobuf.message import DecodeError

from fedsecure.crypto.certificates import as_utc
from fedsecure.crypto.sealing import PUBLIC_BYTES
from fedsecure.crypto.statements import Signer, check_statement
from fedsecure.errors import CertificateError, RemoteProtocolError
from fedsecure.prediction.statements import from_message, to_message
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["KEY_LABEL", "MAX_KEY_LIFE_MS", "NodeKey", "node_key_statement", "read_node_key"]

#: What the signature is for.
KEY_LABEL: Final = "node-query-key"
#: No key is valid for longer than a day from now (milliseconds) …
MAX_KEY_LIFE_MS: Final = 24 * 3_600_000
#: … by clocks that may differ by this much (milliseconds).
CLOCK_TOLERANCE_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class NodeKey:
    """What to seal a node's queries to, and until when (milliseconds since 1970-01-01 UTC)."""

    public: bytes
    not_after_ms: int


def node_key_statement(
    signer: Signer, federation: str, node: str, public: bytes, not_after_ms: int
) -> pb.SignedStatement:
    """``public`` (32 bytes) signed by ``node``'s ``signer`` as its key for queries until ``not_after_ms``."""
    key = pb.NodeKey(federation=federation, node_id=node, public=public, not_after_unix_ms=not_after_ms)
    return to_message(signer.sign(KEY_LABEL, key.SerializeToString(deterministic=True)))


def read_node_key(
    statement: pb.SignedStatement,
    *,
    ca_pem: bytes,
    crl_pem: bytes | None,
    federation: str,
    node: str,
    now: datetime,
) -> NodeKey:
    """The key that ``node`` itself says to seal its queries to.

    Raises ``CertificateError``: signed by somebody else, revoked, expired …; ``RemoteProtocolError``: malformed, of
    another node or federation, or valid for longer than a day.
    """
    due = from_message(statement)
    check_statement(
        due, KEY_LABEL, ca_pem=ca_pem, crl_pem=crl_pem, federation=federation, role="node", name=node, now=now
    )
    where = f"key for queries of node {node}"
    try:
        key = pb.NodeKey.FromString(due.body)
    except DecodeError:
        raise RemoteProtocolError(f"{where}: malformed") from None
    if (key.federation, key.node_id) != (federation, node):
        raise RemoteProtocolError(
            f"{where}: says it is that of {key.node_id[:64]!r} in federation {key.federation[:64]!r}"
        )
    if len(key.public) != PUBLIC_BYTES:
        raise RemoteProtocolError(f"{where}: {len(key.public)} bytes where an X25519 key has {PUBLIC_BYTES}")
    left = key.not_after_unix_ms - int(as_utc(now).timestamp() * 1000)
    if left <= 0:
        raise CertificateError(
            f"{where}: ran out {-left // 1000} s ago", hint="the node renews it while it runs; compare both clocks"
        )
    if left > MAX_KEY_LIFE_MS + CLOCK_TOLERANCE_MS:
        raise RemoteProtocolError(f"{where}: valid for {left // 3_600_000} hours where 24 are allowed")
    return NodeKey(key.public, key.not_after_unix_ms)
