"""What comes in from analysts and nodes, checked before it is kept or passed on."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from fedsecure.errors import CertificateError, DataError, FedSecureError, NodeUnreachable, RemoteProtocolError
from fedsecure.tensors import Array, Tensors, read_header
from fedsecure.text import printable
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["MAX_QUERY_BYTES", "check_answer", "check_key", "check_size", "plain_record", "refusal", "told"]

#: A query, or an answer, is not larger than this (bytes).
MAX_QUERY_BYTES: Final = 1 << 20
#: A signed statement's certificate and signature are not larger than this, nor is the body of a node's key (bytes).
MAX_SIGNED_BYTES: Final = 16 << 10
#: What a node says of a query that it cannot open is cut to this (characters).
MAX_WORDS: Final = 500
#: What a node may say in the clear of a query that it gives no answer to, by class name; anything else is the first.
_REFUSALS: Final[dict[str, type[FedSecureError]]] = {
    cls.__name__: cls for cls in (RemoteProtocolError, CertificateError, NodeUnreachable)
}


def check_size(what: str, size: int) -> None:
    """Raise ``RemoteProtocolError`` unless ``what`` has 1 to ``MAX_QUERY_BYTES`` bytes."""
    if not 0 < size <= MAX_QUERY_BYTES:
        raise RemoteProtocolError(
            f"{what} of {size} bytes (allowed: 1 to {MAX_QUERY_BYTES})", hint="ask about fewer records at once"
        )


def check_key(statement: pb.SignedStatement) -> None:
    """Raise ``RemoteProtocolError`` for what cannot be a node's signed key. What it says, analysts verify."""
    _check_statement("the node's key", statement, "node-query-key", MAX_SIGNED_BYTES)


def plain_record(statement: pb.SignedStatement, *, run: str, analyst: str) -> Array:
    """The record of a query in the plain form: float32 (1, *shape). The signature is the answering node's to check.

    Raises ``RemoteProtocolError`` when the query is malformed or says another run, analyst or node than the call, and
    ``DataError`` for tensors that are not one record ``x``.
    """
    _check_statement("the query", statement, "query", MAX_QUERY_BYTES)
    try:
        query = pb.Query.FromString(statement.body)
    except DecodeError:
        raise RemoteProtocolError("the query is malformed") from None
    for field, said, due in (("run", query.plan_digest, run), ("analyst", query.analyst_id, analyst)):
        if said != due:
            raise RemoteProtocolError(f"the query names {field} {said[:64]!r}, the call {due!r}")
    if query.node_id or query.reply_key:
        raise RemoteProtocolError("the query is for a node of its own choice: send it sealed")
    header = read_header(query.records)
    if list(header) != ["x"]:
        raise DataError("a query has one tensor, named x")
    dtype, shape = header["x"]
    if dtype != "float32" or shape[:1] != (1,):
        raise DataError(f"tensor x: {dtype} {list(shape)} where float32 [1, …] is due: one record a query")
    return Tensors.from_bytes(query.records)["x"]


def check_answer(statement: pb.SignedStatement) -> None:
    """Raise ``RemoteProtocolError`` for what cannot be a node's signed answer. What it says, the analyst verifies."""
    _check_statement("the answer", statement, "plain-answer", MAX_QUERY_BYTES)


def told(statement: pb.SignedStatement) -> str:
    """What a signed answer, unchecked, says: ``prediction``, ``refusal``, or ``""`` for neither. For the operator's
    eyes alone."""
    try:
        return pb.PlainAnswer.FromString(statement.body).outcome.WhichOneof("kind") or ""
    except DecodeError:
        return ""


def refusal(node: str, refused: pb.Refusal) -> FedSecureError:
    """What a node says, in the clear, of a query that it cannot open, or cannot sign an answer to."""
    words, hint = _printable(refused.message) or "refused the query", _printable(refused.hint)
    error = _REFUSALS.get(refused.error, RemoteProtocolError)
    return error(f"node {node}: {words}", hint=hint or ("fetch its key again" if error is RemoteProtocolError else ""))


def _check_statement(what: str, statement: pb.SignedStatement, label: str, limit: int) -> None:
    if statement.label != label:
        raise RemoteProtocolError(f"{what} is signed as {statement.label[:40]!r} where {label!r} is due")
    if not statement.body or not statement.certificate or not statement.signature:
        raise RemoteProtocolError(f"{what} is not signed: its body, certificate or signature is missing")
    if len(statement.body) > limit or len(statement.certificate) + len(statement.signature) > MAX_SIGNED_BYTES:
        raise RemoteProtocolError(f"{what} has {statement.ByteSize()} bytes (allowed: {limit})")


def _printable(text: str) -> str:
    return " ".join(printable(text).split())[:MAX_WORDS]
