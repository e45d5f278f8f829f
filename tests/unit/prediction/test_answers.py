"""Answers: what a node says is what the analyst reads, and nothing that is no answer passes for one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.errors import (
    DataError,
    NodeUnreachable,
    PolicyError,
    RemoteProtocolError,
    StoreError,
)
from fedsecure.method import Prediction
from fedsecure.prediction.answers import decode_outcome, encode_prediction, encode_refusal
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import prediction_pb2 as pb

DIGEST = "12" * 32


def rows(n: int, m: int, seed: int = 0):
    drawn = np.random.default_rng(seed).random((n, m)) + 1e-6
    return (drawn / drawn.sum(axis=1, keepdims=True)).astype(np.float32)


def decode(outcome, *, node="a", digest=DIGEST, records=3, classes=4):
    return decode_outcome(outcome, node=node, digest=digest, records=records, classes=classes)


@given(n=st.integers(1, 64), k=st.integers(1, 50), c=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_what_is_answered_is_read(n, k, c, seed):
    said = Prediction(rows(n, k, seed), rows(n, c, seed + 1))
    read = decode(encode_prediction("a", DIGEST, said), records=n, classes=k)
    assert (read.probabilities == said.probabilities).all()
    assert (read.components == said.components).all()


def outcome(**changes):
    tensors = {"probabilities": rows(3, 4), "components": rows(3, 2), **changes}
    return pb.Outcome(
        prediction=pb.PredictionBody(
            node_id="a",
            query_digest=DIGEST,
            tensors=Tensors({k: v for k, v in tensors.items() if v is not None}).to_bytes(),
        )
    )


def changed(array, value):
    array = array.copy()
    array[0, 0] = value
    return array


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"probabilities": rows(2, 4)}, r"\[2, 4\] where float32 \[3, 4\] is due"),
        ({"probabilities": rows(3, 5)}, r"\[3, 5\]"),
        ({"probabilities": rows(3, 4).astype(np.float64)}, "float64"),
        ({"probabilities": changed(rows(3, 4), np.nan)}, "not finite"),
        ({"probabilities": changed(rows(3, 4), np.inf)}, "not finite"),
        ({"probabilities": changed(rows(3, 4), -0.1)}, "outside 0..1"),
        ({"probabilities": rows(3, 4) * np.float32(0.99)}, "do not sum to one"),
        ({"components": rows(3, 2) * np.float32(0.5)}, "tensor components: rows that do not sum to one"),
        ({"components": np.zeros((3, 0), np.float32)}, "tensor components"),
        ({"components": np.ones(3, np.float32)}, "tensor components"),
        ({"components": None}, "where probabilities and components are due"),
        ({"extra": rows(3, 2)}, "where probabilities and components are due"),
    ],
)
def test_answers_that_are_none(changes, fault):
    decode(outcome())
    with pytest.raises(RemoteProtocolError, match=fault) as caught:
        decode(outcome(**changes))
    assert "node a" in str(caught.value)


def test_answers_to_another_query_or_of_another_node():
    with pytest.raises(RemoteProtocolError, match="in the name of 'a'"):
        decode(outcome(), node="b")
    with pytest.raises(RemoteProtocolError, match="to another query"):
        decode(outcome(), digest="34" * 32)
    with pytest.raises(RemoteProtocolError, match="neither"):
        decode(pb.Outcome())
    with pytest.raises(RemoteProtocolError, match="malformed answer"):
        decode(pb.Outcome(prediction=pb.PredictionBody(node_id="a", query_digest=DIGEST, tensors=b"junk")))


@pytest.mark.parametrize("cls", [PolicyError, DataError, RemoteProtocolError, NodeUnreachable])
def test_a_refusal_is_raised_by_name(cls):
    with pytest.raises(cls, match="^node a: prediction.analysts: not you$") as caught:
        decode(encode_refusal(cls("prediction.analysts: not you", hint="ask them")))
    assert type(caught.value) is cls
    assert caught.value.hint == "ask them"


def test_a_nodes_own_troubles_stay_its_own():
    said = encode_refusal(StoreError("/var/lib/node/store.db: no space left", hint="df -h"))
    assert "/var" not in str(said)
    with pytest.raises(NodeUnreachable, match="reason of its own"):
        decode(said)


def test_refusals_are_not_believed_beyond_the_table():
    for name in ("FedSecureError", "SystemExit", "StoreError", "os.system", ""):
        with pytest.raises(RemoteProtocolError, match="none of ours"):
            decode(pb.Outcome(refusal=pb.Refusal(error=name, message="x")))
    long = pb.Outcome(refusal=pb.Refusal(error="PolicyError", message="\x1b[2J" + "x" * 5000, hint="y" * 5000))
    with pytest.raises(PolicyError) as caught:
        decode(long)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 900
    assert len(caught.value.hint) <= 200
