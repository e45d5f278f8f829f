"""The plain form: the coordinator routes, one record a query, and the node is still named and checked."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.analyst.session import Question, predict
from fedsecure.errors import NodeUnreachable, PolicyError, RemoteProtocolError
from fedsecure.wire.v1 import prediction_pb2 as pb

FOR_A, FOR_B = [3.0, 1.0], [1.0, 3.0]


@pytest.fixture
def ask(world, queries):
    def no_method(plan):
        raise AssertionError("a thin client builds no method")

    def run(rows=(FOR_A, FOR_B), **how):
        question = Question((queries(rows),), world.plan.digest(), route_at="coordinator", **how)
        answered = predict(world.settings, question, no_method)
        if answered.fault is not None:
            raise answered.fault
        return answered

    return run


def plain_queries(world) -> list[pb.AskPlainRequest]:
    return [r for r in world.seen if isinstance(r, pb.AskPlainRequest)]


def test_the_coordinator_routes(world, ask):
    found = ask()
    assert [a.node for a in found.answers] == ["a", "b"]
    assert [a.scores for a in found.answers] == [None, None]
    asked = plain_queries(world)
    assert [len(pb.Query.FromString(r.query.body).reply_key) for r in asked] == [0, 0]
    assert not [r for r in world.seen if isinstance(r, pb.DownloadRoutingRequest)]
    assert np.asarray(FOR_A, np.float32).tobytes() in asked[0].query.body  # this is what the sealed form is for


def test_scores_when_they_are_asked_for(ask):
    assert ask(scores=True).answers[0].scores == {"a": 3.0, "b": 1.0}


def test_a_killed_node(world, ask):
    world.nodes["b"].up = False
    with pytest.raises(NodeUnreachable, match="node b"):
        ask()
    found = ask(fallback="next")
    assert [(a.node, a.best, a.fallback) for a in found.answers] == [("a", "a", False), ("a", "b", True)]
    world.nodes["a"].up = False
    with pytest.raises(NodeUnreachable, match="no node can be reached; at last: node b"):
        ask(fallback="next")


def test_a_refusal_has_its_name(world, ask):
    world.nodes["b"].analysts = set()
    with pytest.raises(PolicyError, match="node b: prediction.analysts"):
        ask()


def test_answers_of_strangers_and_false_scores(world, ask):
    for change, fault in (
        (lambda reply: setattr(reply, "node_id", "c"), "'c', who is no node of run"),
        (lambda reply: reply.nodes.append("c"), "scores of other nodes"),
        (lambda reply: reply.scores.append(1.0), "scores of other nodes"),
        (lambda reply: reply.scores.__setitem__(0, float("nan")), "not finite"),
    ):
        world.falsify = change
        with pytest.raises(RemoteProtocolError, match=fault):
            ask([FOR_A], scores=True)
