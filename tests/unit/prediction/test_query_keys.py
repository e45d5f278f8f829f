"""A node's key for queries counts when that node signed it, for this federation, for at most a day."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fedsecure.crypto.sealing import SealingKey
from fedsecure.errors import CertificateError, RemoteProtocolError
from fedsecure.prediction.keys import MAX_KEY_LIFE_MS, node_key_statement, read_node_key
from fedsecure.prediction.statements import to_message
from fedsecure.wire.v1 import prediction_pb2 as pb

HOUR = 3_600_000


@pytest.fixture(scope="module")
def public() -> bytes:
    return SealingKey.generate().public


def statement(signers, public, *, signer="a", federation="heart", node="a", life=HOUR, role="node"):
    return node_key_statement(signers.signer(role, signer), federation, node, public, signers.now_ms + life)


def test_a_nodes_key_is_read_back(signers, public):
    key = read_node_key(statement(signers, public), node="a", **signers.trust())
    assert (key.public, key.not_after_ms) == (public, signers.now_ms + HOUR)
    read_node_key(statement(signers, public, life=MAX_KEY_LIFE_MS), node="a", **signers.trust())


def test_keys_that_do_not_count(signers, public):
    trust = signers.trust()
    for made, fault, error in (
        (statement(signers, public, signer="b"), "another's name", CertificateError),
        (statement(signers, public, signer="a", role="analyst"), "wrong role", CertificateError),
        (statement(signers, public, node="b"), "says it is that of 'b'", RemoteProtocolError),
        (statement(signers, public, federation="lung"), "in federation 'lung'", RemoteProtocolError),
        (statement(signers, public, life=-5000), "ran out 5 s ago", CertificateError),
        (statement(signers, public, life=30 * HOUR), "valid for 30 hours", RemoteProtocolError),
        (statement(signers, public[:31]), "31 bytes", RemoteProtocolError),
        (pb.SignedStatement(), "label '' where", RemoteProtocolError),
        (to_message(signers.signer("node", "a").sign("node-query-key", b"\xff")), "malformed", RemoteProtocolError),
        (to_message(signers.signer("node", "a").sign("query", b"")), "label 'query'", RemoteProtocolError),
    ):
        with pytest.raises(error, match=fault):
            read_node_key(made, node="a", **trust)


def test_a_key_outlives_neither_itself_nor_its_certificate(signers, public):
    made = statement(signers, public)
    with pytest.raises(CertificateError, match="ran out"):
        read_node_key(made, node="a", **signers.trust(now=signers.now + timedelta(hours=1)))
    with pytest.raises(CertificateError, match="expired"):
        read_node_key(made, node="a", **signers.trust(now=signers.now + timedelta(days=91)))
