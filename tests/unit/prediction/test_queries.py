"""Queries: read back bit for bit by whom they are for; anything else is named."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsecure.crypto.sealing import SealingKey
from fedsecure.errors import CertificateError, DataError, RemoteProtocolError
from fedsecure.prediction.queries import answer_info, make_query, query_info, read_query
from fedsecure.prediction.statements import to_message
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import prediction_pb2 as pb

RUN = "ab" * 32


def ask(signers, x, **changes):
    given_ = {
        "run": RUN, "node": "a", "analyst": "dr-weiss", "now_ms": signers.now_ms, "reply_public": b"k" * 32,
    }  # fmt: skip
    return make_query(signers.signer("analyst", "dr-weiss"), x=x, **{**given_, **changes})


def read(signers, statement, **changes):
    due = {"run": RUN, "node": "a", "analyst": "dr-weiss"}
    return read_query(statement, **signers.trust(), **{**due, **changes})


@given(x=hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=st.floats(0, 1, width=32)))
@settings(max_examples=25, deadline=None)
def test_what_is_asked_is_read(signers, x):
    asked = ask(signers, x)
    query = read(signers, asked.statement)
    assert query.x == Tensors({"x": x})
    assert query.digest == asked.digest == hashlib.sha256(asked.statement.body).hexdigest()
    assert (query.run, query.node, query.analyst, query.reply_key) == (RUN, "a", "dr-weiss", b"k" * 32)
    assert query.unix_ms == signers.now_ms
    assert len(query.nonce) == 16


def test_two_equal_queries_are_told_apart(signers):
    x = np.zeros((1, 2), dtype=np.float32)
    first, second = ask(signers, x), ask(signers, x)
    assert first.digest != second.digest
    assert read(signers, first.statement).nonce != read(signers, second.statement).nonce


def test_the_plain_form_names_no_node_and_no_reply_key(signers):
    x = np.zeros((1, 2), dtype=np.float32)
    plain = ask(signers, x, node="", reply_public=b"")
    assert read(signers, plain.statement, node="").reply_key == b""
    with pytest.raises(RemoteProtocolError, match="signed for node '', and came for 'a'"):
        read(signers, plain.statement)
    with pytest.raises(RemoteProtocolError, match="reply key of 32 bytes"):
        read(signers, ask(signers, x, node="").statement, node="")


def test_queries_for_something_else(signers):
    x = np.zeros((1, 2), dtype=np.float32)
    asked = ask(signers, x).statement
    for changes, fault, error in (
        ({"run": "cd" * 32}, "signed for run", RemoteProtocolError),
        ({"node": "b"}, "signed for node 'a', and came for 'b'", RemoteProtocolError),
        ({"analyst": "dr-rot"}, "another's name", CertificateError),
    ):
        with pytest.raises(error, match=fault):
            read(signers, asked, **changes)
    in_anothers_name = ask(signers, x, analyst="dr-rot").statement
    with pytest.raises(RemoteProtocolError, match="signed for analyst 'dr-rot'"):
        read(signers, in_anothers_name)


def test_a_node_is_no_analyst(signers):
    asked = make_query(
        signers.signer("node", "a"),
        run=RUN,
        node="a",
        analyst="a",
        x=np.zeros((1, 2)),
        now_ms=0,
        reply_public=b"k" * 32,
    )
    with pytest.raises(CertificateError, match="wrong role"):
        read(signers, asked.statement, analyst="a")


def signed(signers, **fields):
    body = {
        "plan_digest": RUN, "node_id": "a", "analyst_id": "dr-weiss", "nonce": b"n" * 16, "reply_key": b"k" * 32,
        "records": Tensors({"x": np.zeros((1, 2), np.float32)}).to_bytes(),
    }  # fmt: skip
    message = pb.Query(**{**body, **fields})
    return to_message(signers.signer("analyst", "dr-weiss").sign("query", message.SerializeToString()))


def test_malformed_bodies(signers):
    read(signers, signed(signers))
    for statement, fault in (
        (to_message(signers.signer("analyst", "dr-weiss").sign("query", b"\xff\xff")), "malformed"),
        (signed(signers, nonce=b"n"), "a nonce of 1 bytes"),
        (signed(signers, reply_key=b"k"), "a reply key of 1 bytes"),
    ):
        with pytest.raises(RemoteProtocolError, match=fault):
            read(signers, statement)


@pytest.mark.parametrize(
    ("tensors", "fault"),
    [
        ({"y": np.zeros((1, 2), np.float32)}, "tensor x alone"),
        ({"x": np.zeros((1, 2), np.float32), "y": np.zeros(1, np.float32)}, "tensor x alone"),
        ({"x": np.zeros((1, 2), np.float64)}, "float64"),
        ({"x": np.zeros((0, 2), np.float32)}, "n >= 1"),
        ({"x": np.zeros(3, np.float32)}, "n >= 1"),
    ],
)
def test_records_are_looked_at_once_the_reply_key_is_known(signers, tensors, fault):
    query = read(signers, signed(signers, records=Tensors(tensors).to_bytes()))
    assert query.reply_key == b"k" * 32
    with pytest.raises(DataError, match=fault):
        _ = query.x


def test_damaged_records(signers):
    query = read(signers, signed(signers, records=b"not tensors"))
    with pytest.raises(DataError):
        _ = query.x


def test_purposes_differ_by_run_node_and_query():
    key = SealingKey.generate()
    assert key.public
    assert len({query_info(RUN, "a"), query_info(RUN, "b"), query_info("cd" * 32, "a"), answer_info(RUN)}) == 4
    assert query_info("r", "n") == b"fedsecure-query-1\0r\0n"
    assert answer_info("d") == b"fedsecure-answer-1\0d"
