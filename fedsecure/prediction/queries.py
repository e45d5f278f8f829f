"""What an analyst asks: records in a body that is signed by the analyst, sealed or not.

The digest of a query is the SHA-256 of its body's bytes; an answer has to carry it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from fedsecure.crypto.sealing import PUBLIC_BYTES, check_public
from fedsecure.crypto.statements import Signer, check_statement
from fedsecure.errors import DataError, RemoteProtocolError
from fedsecure.prediction.padding import padded
from fedsecure.prediction.statements import from_message, to_message
from fedsecure.tensors import Array, Tensors, read_header
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = [
    "NONCE_BYTES",
    "QUERY_LABEL",
    "QUERY_RECORDS",
    "Asked",
    "Query",
    "answer_info",
    "make_query",
    "query_digest",
    "query_info",
    "read_query",
    "reply_key",
]

#: What the signature is for.
QUERY_LABEL: Final = "query"
#: An analyst's client puts at most so many records into one query.
QUERY_RECORDS: Final = 64
#: Random bytes that tell two equal queries apart, so that none is answered twice.
NONCE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """A query ready to be sent: the signed statement, and the digest that its answer has to carry."""

    statement: pb.SignedStatement
    digest: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query whose signature was checked. ``reply_key`` is empty in the plain form; ``fingerprint`` is that of the
    analyst's certificate; ``unix_ms`` is the analyst's clock when it was made. Its records are read by ``x``."""

    run: str
    node: str
    analyst: str
    nonce: bytes = field(repr=False)
    unix_ms: int
    reply_key: bytes = field(repr=False)
    records: bytes = field(repr=False)
    digest: str
    fingerprint: str

    @property
    def x(self) -> Tensors:
        """The records as tensor ``x``, float32 (n, *shape), n >= 1. Raises ``DataError`` naming what does not fit.

        Read only when it is asked for: a refusal of damaged records can then be sealed to ``reply_key``. Whether shape
        and values are those of the run is not checked here.
        """
        header = read_header(self.records)
        if set(header) != {"x"}:
            raise DataError(f"a query holds tensor x alone, not {sorted(header)[:4]}")
        dtype, shape = header["x"]
        if dtype != "float32" or len(shape) < 2 or shape[0] < 1:
            raise DataError(f"tensor x: {dtype} {list(shape)} where float32 records (n, *shape), n >= 1, are due")
        return Tensors.from_bytes(self.records)


def query_info(run: str, node: str) -> bytes:
    """What a sealed query is for: ``run`` is the plan's digest."""
    return b"\0".join((b"fedsecure-query-1", run.encode(), node.encode()))


def answer_info(digest: str) -> bytes:
    """What a sealed answer is for: the query of this digest."""
    return b"\0".join((b"fedsecure-answer-1", digest.encode()))


def make_query(
    signer: Signer, *, run: str, node: str, analyst: str, x: Array, now_ms: int, reply_public: bytes
) -> Asked:
    """Records ``x``, float32 (n, *shape), as ``analyst``'s signed query to ``node`` about ``run`` (a plan's digest).

    ``reply_public``: 32 bytes, what the answer is to be sealed to. In the plain form ``node`` and ``reply_public`` are
    empty, and nothing is padded. ``now_ms``: milliseconds since 1970-01-01 UTC.
    """
    query = pb.Query(
        plan_digest=run,
        node_id=node,
        analyst_id=analyst,
        nonce=os.urandom(NONCE_BYTES),
        unix_ms=now_ms,
        reply_key=reply_public,
        records=Tensors({"x": np.asarray(x, dtype=np.float32)}).to_bytes(),
    )
    body = padded(query) if node else query.SerializeToString(deterministic=True)
    return Asked(to_message(signer.sign(QUERY_LABEL, body)), query_digest(body))


def query_digest(body: bytes) -> str:
    """The digest of a query by its statement's body."""
    return hashlib.sha256(body).hexdigest()


def reply_key(statement: pb.SignedStatement) -> bytes:
    """What the answer to an opened query is to be sealed to (32 bytes), *unchecked*: whoever made the query has it.

    Raises ``RemoteProtocolError`` when the body is no query, or nobody can seal to its key.
    """
    try:
        key = pb.Query.FromString(statement.body).reply_key
    except DecodeError:
        raise RemoteProtocolError("what is sealed is no query") from None
    check_public(key)
    return key


def read_query(
    statement: pb.SignedStatement,
    *,
    ca_pem: bytes,
    crl_pem: bytes | None,
    federation: str,
    run: str,
    node: str,
    analyst: str,
    now: datetime,
) -> Query:
    """The query inside ``statement``, which ``analyst`` signed for ``node`` (empty: the plain form) about ``run``.

    Freshness, nonces, sizes and the records themselves are the node's to check. Raises ``CertificateError`` for the
    faults of certificate and signature, ``RemoteProtocolError`` for a body that is malformed or says something else
    than the arguments.
    """
    due = from_message(statement)
    peer = check_statement(
        due, QUERY_LABEL, ca_pem=ca_pem, crl_pem=crl_pem, federation=federation, role="analyst", name=analyst, now=now
    )
    try:
        body = pb.Query.FromString(due.body)
    except DecodeError:
        raise RemoteProtocolError(f"query of analyst {analyst}: malformed") from None
    _check_body(body, run, node, analyst)
    return Query(
        run=body.plan_digest,
        node=body.node_id,
        analyst=body.analyst_id,
        nonce=body.nonce,
        unix_ms=body.unix_ms,
        reply_key=body.reply_key,
        records=body.records,
        digest=query_digest(due.body),
        fingerprint=peer.fingerprint,
    )


def _check_body(body: pb.Query, run: str, node: str, analyst: str) -> None:
    """Refuse a body that was signed for something else than what it is used for now."""
    where = f"query of analyst {analyst}"
    for key, said, due in (
        ("analyst", body.analyst_id, analyst),
        ("run", body.plan_digest, run),
        ("node", body.node_id, node),
    ):
        if said != due:
            raise RemoteProtocolError(f"{where}: is signed for {key} {said[:64]!r}, and came for {due[:64]!r}")
    if len(body.nonce) != NONCE_BYTES:
        raise RemoteProtocolError(f"{where}: a nonce of {len(body.nonce)} bytes where {NONCE_BYTES} are due")
    if len(body.reply_key) != (PUBLIC_BYTES if node else 0):
        raise RemoteProtocolError(
            f"{where}: a reply key of {len(body.reply_key)} bytes; {PUBLIC_BYTES} are due in the sealed form, none in "
            "the plain one"
        )
    if node:
        check_public(body.reply_key)
