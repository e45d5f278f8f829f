"""Who is asked about what: by the scores, in parts, each record once, whoever is down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.analyst.asking import INNER_OVERHEAD, OUTER_OVERHEAD, ask_by_scores, check_scores, records_a_query
from fedsecure.analyst.batch import Batch
from fedsecure.errors import DataError, NodeUnreachable, PolicyError, RemoteProtocolError, WireError
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


def asked(scores, ask, *, part=4, fallback="next", watch=lambda settled, records: None) -> Batch:
    batch = Batch(len(scores), watch)
    ask_by_scores(np.asarray(scores, dtype=np.float64), NODES, ask, batch, part=part, fallback=fallback)
    assert len(batch.open()) == 0
    assert sorted([*batch.answers, *batch.faults]) == list(range(len(scores)))
    return batch


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
    batch = asked(scores, nodes, part=part)
    assert batch.fault is None
    for row, answer in batch.answers.items():
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
    best = [NODES[i] for i in scores.argmax(axis=1)]
    batch = asked(scores, nodes, part=part, fallback="refuse")
    assert {node for node, _ in nodes.calls} == {*best}
    assert {row: answer.node for row, answer in batch.answers.items()} == {
        row: node for row, node in enumerate(best) if node not in down
    }
    for row, error in batch.faults.items():  # nothing that could be answered is lost
        assert str(error) == f"node {best[row]} is down"
        assert isinstance(error, NodeUnreachable)
    assert all(sum(called == node for called, _ in nodes.calls) == 1 for node in down & {*best})


def test_all_down():
    nodes = Nodes(NODES)
    batch = asked(np.zeros((9, 3)), nodes)
    assert not batch.answers
    assert str(batch.fault).startswith("no node can be reached; at last: node c is down")
    assert [node for node, _ in nodes.calls] == [*NODES]


def test_ties_go_to_the_first_name():
    assert asked(np.zeros((1, 3)), Nodes()).answers[0].node == "a"


#: Rows 0, 3, 6 … are for a, 1, 4 … for b, 2, 5 … for c.
TURNS = np.eye(3)[np.arange(12) % 3]


class Refusing(Nodes):
    """As ``Nodes``; what ``refuse(node, rows)`` returns is raised."""

    def __init__(self, refuse) -> None:
        super().__init__()
        self.refuse = refuse

    def __call__(self, node, rows):
        given = super().__call__(node, rows)
        error = self.refuse(node, rows)
        if error is not None:
            raise error
        return given


@pytest.mark.parametrize("fallback", ["refuse", "next"])
def test_a_node_that_refuses_is_not_asked_again_and_the_others_are(fallback):
    nodes = Refusing(lambda node, rows: PolicyError("node b: the hour is over") if node == "b" and 7 in rows else None)
    batch = asked(TURNS, nodes, part=2, fallback=fallback)
    assert nodes.calls == [("a", [0, 3]), ("a", [6, 9]), ("b", [1, 4]), ("b", [7, 10]), ("c", [2, 5]), ("c", [8, 11])]
    assert sorted(batch.faults) == [7, 10]  # and nobody else is asked about them
    assert isinstance(batch.fault, PolicyError)
    nodes = Refusing(lambda node, rows: PolicyError("node b: not you") if node == "b" else None)
    assert sorted(asked(TURNS, nodes, part=2, fallback=fallback).faults) == [1, 4, 7, 10]
    assert [node for node, _ in nodes.calls] == ["a", "a", "b", "c", "c"]


def test_records_refused_for_what_they_hold_stop_no_others():
    nodes = Refusing(lambda node, rows: DataError("node a: tensor x: no") if 0 in rows else None)
    batch = asked(TURNS, nodes, part=2)
    assert sorted(batch.faults) == [0, 3]
    assert nodes.calls[1] == ("a", [6, 9])


def test_when_the_coordinator_is_gone_what_was_answered_is_kept():
    nodes = Refusing(lambda node, rows: WireError("gone") if node == "b" else None)
    batch = asked(TURNS, nodes, part=4)
    assert sorted(batch.answers) == [0, 3, 6, 9]
    assert [node for node, _ in nodes.calls] == ["a", "b"]
    assert isinstance(batch.fault, WireError)
    assert batch.stopped is batch.faults[11]


@pytest.mark.parametrize(("allowed", "sizes"), [(5, [12, 6, 3, 3, 3, 3]), (1, [12, 6, 3] + [1] * 12)])
def test_a_query_that_is_too_large_for_a_node_is_asked_in_halves(allowed, sizes):
    def refuse(node, rows):
        return PolicyError(f"node {node}: prediction.max_records_per_query: …") if len(rows) > allowed else None

    nodes = Refusing(refuse)
    batch = asked(np.tile([1.0, 0, 0], (12, 1)), nodes, part=64)
    assert len(batch.answers) == 12
    assert [len(rows) for _, rows in nodes.calls] == sizes


def test_a_node_that_takes_no_record_at_all_is_not_asked_for_ever():
    nodes = Refusing(lambda node, rows: PolicyError(f"node {node}: prediction.max_records_per_query: …"))
    assert len(asked(np.tile([1.0, 0, 0], (4, 1)), nodes).faults) == 4
    assert [len(rows) for _, rows in nodes.calls] == [4, 2, 1]


def test_the_progress_is_told_after_every_query():
    told = []
    asked(TURNS, Nodes(), part=2, watch=lambda settled, records: told.append((settled, records)))
    assert told == [(n, 12) for n in (2, 4, 6, 8, 10, 12)]


def test_parts_by_bytes():
    assert records_a_query(4, 1 << 20) == 64
    assert records_a_query(1000, OUTER_OVERHEAD + 4096 + 4095) == (4096 - INNER_OVERHEAD) // 1000
    with pytest.raises(DataError, match="does not fit"):
        records_a_query(5000, OUTER_OVERHEAD + 4096 + 4095)


def test_scores_that_are_none():
    names = ("q.npz:0", "q.npz:1")
    check_scores(np.zeros((2, 3)), names, NODES)
    for scores in (np.zeros((2, 2)), np.zeros(3)):
        with pytest.raises(RemoteProtocolError, match="routing: scores of shape"):
            check_scores(scores, names, NODES)
    for odd in (np.nan, np.inf):
        with pytest.raises(DataError, match="^q.npz:1: its routing scores are not finite$"):
            check_scores(np.asarray([[0.0, 0, 0], [0, odd, 0]]), names, NODES)
