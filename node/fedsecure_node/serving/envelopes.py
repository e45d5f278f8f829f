"""How the answer to a query travels: sealed to the key in the query, or signed when the query was in the plain form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from fedsecure.crypto.keyfiles import read_public, read_secret
from fedsecure.crypto.sealing import SealingKey, seal
from fedsecure.crypto.statements import Signer
from fedsecure.errors import CertificateError, RemoteProtocolError, StoreError
from fedsecure.prediction.padding import padded
from fedsecure.prediction.queries import answer_info, query_digest, query_info, reply_key
from fedsecure.prediction.signed import sign_answer
from fedsecure.wire.credentials import TlsFiles
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["Envelope", "envelope_for", "own_signer", "unsealed"]


@dataclass(frozen=True, slots=True)
class Envelope:
    """For the answer to the query of this ``digest``: sealed to ``reply_key``, or signed by ``signer``."""

    digest: str
    reply_key: bytes = field(default=b"", repr=False)
    signer: Signer | None = None

    def data(self, outcome: pb.Outcome) -> bytes:
        """The outcome's bytes as the analyst will read them; padded when they are to be sealed."""
        return padded(outcome) if self.signer is None else outcome.SerializeToString(deterministic=True)

    def closed(self, data: bytes, node: str, query_id: str) -> pb.AnswerRequest:
        """The message that carries ``data``, which is an outcome's."""
        if self.signer is None:
            sealed = seal(self.reply_key, data, answer_info(self.digest))
            return pb.AnswerRequest(node_id=node, query_id=query_id, sealed=sealed)
        signed = sign_answer(self.signer, self.digest, pb.Outcome.FromString(data))
        return pb.AnswerRequest(node_id=node, query_id=query_id, signed=signed)


def unsealed(relayed: pb.RelayedQuery, key: SealingKey, node: str) -> pb.SignedStatement:
    """The signed query, unchecked, that was relayed. Raises ``RemoteProtocolError`` when it does not open."""
    if relayed.WhichOneof("form") == "plain":
        return relayed.plain
    try:
        body = key.open(relayed.sealed, query_info(relayed.plan_digest, node))
    except RemoteProtocolError:
        raise RemoteProtocolError(
            "the query is sealed to a key that this node does not have (any more)",
            hint="fetch the node's key again, and ask anew",
        ) from None
    try:
        return pb.SignedStatement.FromString(body)
    except DecodeError:
        raise RemoteProtocolError("what is sealed is no signed query") from None


def envelope_for(statement: pb.SignedStatement, *, plain: bool, signer: Callable[[], Signer]) -> Envelope:
    """For the answer to a query that nobody verified yet: a refusal, too, is for its sender's eyes alone.

    Raises ``RemoteProtocolError`` when it names no key to seal to, and what ``signer`` raises.
    """
    digest = query_digest(statement.body)
    return Envelope(digest, signer=signer()) if plain else Envelope(digest, reply_key(statement))


def own_signer(files: TlsFiles) -> Signer:
    """Who signs for this node, by its files as they are now. Raises ``StoreError`` when they cannot be used: that is
    the node's affair, and says nothing of the certificate of whoever asks."""
    try:
        return Signer(read_secret(files.key, "TLS key"), read_public(files.cert, "certificate"))
    except CertificateError as error:
        raise StoreError(str(error), hint=error.hint) from None
