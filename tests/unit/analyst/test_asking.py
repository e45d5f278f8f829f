"""Who is asked about what: by the scores, in parts, each record once, whoever is down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.analyst.asking import INNER_OVERHEAD, OUTER_OVERHEAD, ask_by_scores, check_scores, records_a_query
from fedsecure.errors import DataError, NodeUnreachable, PolicyError, RemoteProtocolError
from fedsecure.method import Prediction

NODES = ("a", "b", "c")


class Nodes:
    """Answers each record with the node's index and the record's own number; those in ``down`` do not."""

    def __init__(self, down=()) -> None:
        self.down, self.calls = set(down), []

    def __call__(self, node, rows):
        self.calls.append((node, rows.tolist()))
        if node in self.down:
            raise NodeUnreachable(f"node {node} is down")
        probabilities = np.stack([np.full(len(rows), NODES.index(node)), rows], axis=1).astype(np.float32)
        return Prediction(probabilities, probabilities)


@st.composite
def worlds(draw):
    n = draw(st.integers(1, 30))
    scores = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(size=(n, len(NODES)))
    return scores, draw(st.sets(st.sampled_from(NODES), max_size=2)), draw(st.integers(1, 7))


@given(worlds())
@settings(max_examples=100, deadline=None)
def test_every_record_is_answered_by_the_best_node_that_is_up(world):
    scores, down, part = world
    nodes = Nodes(down)
    answers = ask_by_scores(scores, NODES, nodes, part=part, fallback="next")
    for row, answer in enumerate(answers):
        ranked = [NODES[i] for i in np.argsort(-scores[row])]
        assert answer.best == ranked[0]
        assert answer.node == next(n for n in ranked if n not in down)
        assert answer.fallback == (ranked[0] in down)
        assert answer.probabilities.tolist() == [NODES.index(answer.node), row]
        assert answer.scores == dict(zip(NODES, scores[row].tolist(), strict=True))
    assert all(1 <= len(rows) <= part for _, rows in nodes.calls)
    for node in down:  # a node that was found down is not asked again
        assert sum(called == node for called, _ in nodes.calls) <= 1


@given(worlds())
@settings(max_examples=50, deadline=None)
def test_without_a_fallback_only_the_best_nodes_are_asked(world):
    scores, down, part = world
    nodes = Nodes(down)
    needed = {NODES[i] for i in scores.argmax(axis=1)}
    if needed & down:
        with pytest.raises(NodeUnreachable, match="is down"):
            ask_by_scores(scores, NODES, nodes, part=part, fallback="refuse")
    else:
        ask_by_scores(scores, NODES, nodes, part=part, fallback="refuse")
        assert {node for node, _ in nodes.calls} == needed


def test_all_down():
    with pytest.raises(NodeUnreachable, match="no node can be reached; at last: node . is down"):
        ask_by_scores(np.zeros((2, 3)), NODES, Nodes(NODES), part=4, fallback="next")


def test_ties_go_to_the_first_name():
    answers = ask_by_scores(np.zeros((1, 3)), NODES, Nodes(), part=4, fallback="next")
    assert answers[0].node == "a"


def test_a_refusal_is_no_reason_to_ask_somebody_else():
    def refuse(node, rows):
        raise PolicyError("not you")

    with pytest.raises(PolicyError, match="not you"):
        ask_by_scores(np.zeros((1, 3)), NODES, refuse, part=4, fallback="next")


def test_parts_by_bytes():
    assert records_a_query(4, 1 << 20) == 64
    assert records_a_query(1000, OUTER_OVERHEAD + 4096 + 4095) == (4096 - INNER_OVERHEAD) // 1000
    with pytest.raises(DataError, match="does not fit"):
        records_a_query(5000, OUTER_OVERHEAD + 4096 + 4095)


def test_scores_that_are_none():
    check_scores(np.zeros((2, 3)), 2, NODES)
    for scores in (np.zeros((2, 2)), np.zeros(3), np.full((2, 3), np.nan), np.full((2, 3), np.inf)):
        with pytest.raises(RemoteProtocolError, match="routing"):
            check_scores(scores, 2, NODES)
