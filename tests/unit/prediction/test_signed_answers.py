"""Answers in the plain form are the node's own, or nobody's."""

from __future__ import annotations

import pytest

from fedsecure.errors import CertificateError, PolicyError, RemoteProtocolError
from fedsecure.prediction.answers import encode_refusal
from fedsecure.prediction.signed import ANSWER_LABEL, read_answer, sign_answer
from fedsecure.prediction.statements import to_message

DIGEST, OUTCOME = "12" * 32, encode_refusal(PolicyError("prediction.analysts: not you"))


def read(signers, statement, *, node="a", digest=DIGEST):
    return read_answer(statement, **signers.trust(), node=node, digest=digest)


def test_what_a_node_signs_is_read(signers):
    assert read(signers, sign_answer(signers.signer("node", "a"), DIGEST, OUTCOME)) == OUTCOME


def test_answers_of_others_and_to_others(signers):
    good = sign_answer(signers.signer("node", "a"), DIGEST, OUTCOME)
    for statement, changes, error, fault in (
        (good, {"node": "b"}, CertificateError, "node b: .*another's name"),
        (good, {"digest": "34" * 32}, RemoteProtocolError, "to another query"),
        (sign_answer(signers.signer("analyst", "dr-weiss"), DIGEST, OUTCOME), {}, CertificateError, "wrong role"),
        (to_message(signers.signer("node", "a").sign(ANSWER_LABEL, b"\xff")), {}, RemoteProtocolError, "malformed"),
        (to_message(signers.signer("node", "a").sign("query", good.body)), {}, RemoteProtocolError, "label 'query'"),
    ):
        with pytest.raises(error, match=fault):
            read(signers, statement, **changes)
