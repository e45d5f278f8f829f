"""Signed statements between their domain form and their message."""

from __future__ import annotations

from fedsecure.crypto.statements import Statement
from fedsecure.wire.v1 import prediction_pb2 as pb

__all__ = ["from_message", "to_message"]


def to_message(statement: Statement) -> pb.SignedStatement:
    """The statement as it travels."""
    return pb.SignedStatement(
        label=statement.label,
        body=statement.body,
        certificate=statement.certificate,
        signature=statement.signature,
    )


def from_message(message: pb.SignedStatement) -> Statement:
    """The statement that a message carries, unchecked."""
    return Statement(message.label, message.body, message.certificate, message.signature)
