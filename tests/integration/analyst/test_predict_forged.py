"""The plain form: whoever relays an answer can read it, but can neither make one up nor change one."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedsecure.analyst.client import connected
from fedsecure.analyst.models import choose, read_model
from fedsecure.analyst.plain import ask_plain
from fedsecure.analyst.session import _asking
from fedsecure.errors import CertificateError, PolicyError, RemoteProtocolError
from fedsecure.method import Prediction
from fedsecure.prediction.answers import encode_prediction, encode_refusal
from fedsecure.prediction.signed import sign_answer
from fedsecure.wire.v1 import prediction_pb2 as pb


@pytest.fixture
def ask(world):
    """Asks about one record, for which node a is the best."""

    def run():
        with connected(world.settings) as (client, greeting):
            model = read_model(choose(client.models(), world.plan.digest()))
            asking = _asking(world.settings, client, greeting, 20)
            x = np.asarray([[3.0, 1.0]], np.float32)
            return ask_plain(asking, model, x, fallback="refuse", scores=False)

    return run


def forge(world, reply, *, signer="b", outcome=None, digest=""):
    """The coordinator, or a node that helps it, puts an answer of its own in the place of node a's."""
    query = [r for r in world.seen if isinstance(r, pb.AskPlainRequest)][-1].query
    due = hashlib.sha256(query.body).hexdigest()
    uniform = np.full((1, 2), 0.5, np.float32)
    made = outcome or encode_prediction("a", due, Prediction(uniform, uniform))
    reply.answer.CopyFrom(sign_answer(world.nodes[signer].signer, digest or due, made))


def in_anothers_name(world, reply):
    reply.node_id = "b"


def made_up(world, reply):
    forge(world, reply)


def made_up_refusal(world, reply):
    forge(world, reply, outcome=encode_refusal(PolicyError("prediction.analysts: not you")))


def to_another_query(world, reply):
    forge(world, reply, signer="a", digest="0" * 64)


def changed(world, reply):
    reply.answer.body = reply.answer.body[:-1] + bytes([reply.answer.body[-1] ^ 1])


def left_out(world, reply):
    reply.ClearField("answer")


@pytest.mark.parametrize(
    ("change", "error", "fault"),
    [
        (in_anothers_name, CertificateError, "node b: .*another's name"),
        (made_up, CertificateError, "node a: .*another's name"),
        (made_up_refusal, CertificateError, "node a: .*another's name"),
        (to_another_query, RemoteProtocolError, "node a: an answer to another query"),
        (changed, CertificateError, "node a: the signature of a plain-answer statement is not by the key of node a"),
        (left_out, RemoteProtocolError, "label '' where 'plain-answer' is due"),
    ],
)
def test_a_coordinator_cannot_forge_an_answer(world, ask, change, error, fault):
    assert ask().node == "a"
    world.falsify = lambda reply: change(world, reply)
    with pytest.raises(error, match=fault):
        ask()


def test_a_refusal_of_the_node_itself_keeps_its_class(world, ask):
    world.nodes["a"].analysts = set()
    with pytest.raises(PolicyError, match="node a: prediction.analysts"):
        ask()
