"""Answers in the plain form: signed by the node, so that whoever relays them can read but not forge them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from google.protobuf.message import DecodeError

from fedsecure.crypto.statements import Signer, check_statement
from fedsecure.errors import CertificateError, RemoteProtocolError
from fedsecure.prediction.statements import from_message, to_message
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["ANSWER_LABEL", "read_answer", "sign_answer"]

#: What the signature is for.
ANSWER_LABEL: Final = "plain-answer"


def sign_answer(signer: Signer, digest: str, outcome: pb.Outcome) -> pb.SignedStatement:
    """``outcome``, prediction or refusal, signed as the answer to the query of this ``digest``."""
    body = pb.PlainAnswer(query_digest=digest, outcome=outcome)
    return to_message(signer.sign(ANSWER_LABEL, body.SerializeToString(deterministic=True)))


def read_answer(
    statement: pb.SignedStatement,
    *,
    ca_pem: bytes,
    crl_pem: bytes | None,
    federation: str,
    node: str,
    digest: str,
    now: datetime,
) -> pb.Outcome:
    """What ``node`` itself answers to the query of this ``digest``; the outcome is ``decode_outcome``'s to check.

    Raises ``CertificateError``: signed by somebody else, revoked, expired, or changed on the way;
    ``RemoteProtocolError``: malformed, or an answer to another query.
    """
    due = from_message(statement)
    try:
        check_statement(
            due, ANSWER_LABEL, ca_pem=ca_pem, crl_pem=crl_pem, federation=federation, role="node", name=node, now=now
        )
    except CertificateError as error:
        raise CertificateError(f"node {node}: {error}", hint=error.hint) from None
    try:
        body = pb.PlainAnswer.FromString(due.body)
    except DecodeError:
        raise RemoteProtocolError(f"node {node}: a malformed answer") from None
    if body.query_digest != digest:
        raise RemoteProtocolError(
            f"node {node}: an answer to another query ({body.query_digest[:12]!r}, not {digest[:12]!r})"
        )
    return body.outcome
