"""Sealed prediction over mutual TLS: the right node answers, the coordinator reads nothing, every fault has a name."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.analyst.models import choose
from fedsecure.analyst.session import list_models
from fedsecure.errors import (
    ConfigError,
    DataError,
    NodeUnreachable,
    PolicyError,
    RemoteProtocolError,
)
from fedsecure.wire.v1 import prediction_pb2 as pb

FOR_A, FOR_B = [3.0, 1.0], [1.0, 3.0]


def test_each_record_is_answered_by_its_best_node(world, ask, tmp_path):
    found = ask(scores=True)
    assert [a.node for a in found.answers] == ["a", "b", "a"]
    assert [a.best for a in found.answers] == ["a", "b", "a"]
    assert not any(a.fallback for a in found.answers)
    assert [int(a.probabilities.argmax()) for a in found.answers] == [0, 1, 0]
    assert found.answers[1].scores == {"a": 1.0, "b": 3.0}
    assert found.names == tuple(f"{tmp_path / 'q.npz'}:{i}" for i in range(3))
    assert found.run == world.plan.digest()
    assert sorted(world.asked()) == ["a", "b"]


def test_the_coordinator_sees_no_record(world, ask):
    row = np.asarray([2.718281828, 1.41421356], dtype=np.float32)
    ask([row])
    seen = b"".join(m.SerializeToString() for m in world.seen)
    assert row.tobytes() not in seen
    assert row[:1].tobytes() not in seen
    assert world.asked() == ["a"]


def test_many_records_go_in_parts_and_keep_their_order(world, ask):
    rows = np.random.default_rng(7).uniform(-5, 5, (150, 2)).astype(np.float32)
    found = ask(rows)
    assert [a.node for a in found.answers] == ["a" if u >= v else "b" for u, v in rows]
    for node in world.nodes.values():
        assert max(node.served) <= 64
    assert sum(sum(n.served) for n in world.nodes.values()) == 150


def test_parts_fit_the_coordinators_bound(world, ask):
    world.max_query_bytes = 8192
    ask(np.tile(np.asarray(FOR_A, np.float32), (200, 1)))
    sizes = [len(r.sealed) for r in world.seen if isinstance(r, pb.AskSealedRequest)]
    assert max(sizes) <= 8192
    assert sum(world.nodes["a"].served) == 200


def test_a_killed_node_refuses_by_default(world, ask):
    world.nodes["b"].up = False
    with pytest.raises(NodeUnreachable, match="node b") as caught:
        ask()
    assert "--fallback next" in caught.value.hint
    assert caught.value.exit_code == 20


def test_a_node_killed_after_the_list_was_fetched(world, ask):
    """The list says it is there; the coordinator finds out when it relays."""
    world.nodes["b"].up = False
    world.alter = lambda model: [setattr(n, "reachable", True) for n in model.nodes]
    with pytest.raises(NodeUnreachable, match="node b cannot be reached"):
        ask()
    found = ask(fallback="next")
    assert [(a.node, a.best, a.fallback) for a in found.answers] == [
        ("a", "a", False),
        ("a", "b", True),
        ("a", "a", False),
    ]


def test_with_fallback_the_next_best_answers_and_is_marked(world, ask):
    world.nodes["b"].up = False
    found = ask(fallback="next")
    assert [(a.node, a.best, a.fallback) for a in found.answers] == [
        ("a", "a", False),
        ("a", "b", True),
        ("a", "a", False),
    ]
    world.nodes["a"].up = False
    with pytest.raises(NodeUnreachable, match="no node can be reached"):
        ask(fallback="next")


def test_a_refused_analyst_is_told_the_rule(world, ask, another_analyst):
    with pytest.raises(PolicyError, match="node a: prediction.analysts: dr-rot is not among them"):
        ask(settings=another_analyst("dr-rot"))
    world.nodes["b"].analysts = set()
    with pytest.raises(PolicyError, match="node b: prediction.analysts"):
        ask([FOR_B], fallback="next")


def test_a_restarted_node_has_a_new_key_and_is_asked_again(world, ask):
    node, restarted = world.nodes["a"], []

    def restart_once(model):  # the list that is on its way still has the old key
        if not restarted:
            restarted.append(node.restart())

    world.alter = restart_once
    assert [a.node for a in ask([FOR_A]).answers] == ["a"]
    assert world.asked() == ["a", "a"]


def test_a_query_that_does_not_open_is_not_tried_for_ever(world, ask):
    node = world.nodes["a"]
    node.key = type(node.key).generate()  # and never says so
    with pytest.raises(RemoteProtocolError, match="node a: a sealed message"):
        ask([FOR_A])
    assert world.asked() == ["a"]


def test_records_that_do_not_fit(world, ask, queries):
    for rows, fault in (
        ([[1.0, 2.0, 3.0]], r"shape \[3\] where the plan asks for \[2\]"),
        ([[1.0, np.nan]], "record 0 holds values that are not finite"),
    ):
        with pytest.raises(DataError, match=fault):
            ask(rows)
    with pytest.raises(DataError, match="has no array 'x'"):
        ask(paths=[queries([FOR_A], key="images")])
    assert world.asked() == []


def test_missing_files_are_named_before_anything_is_dialled(world, ask, tmp_path):
    with pytest.raises(DataError, match="nowhere.npz: no such file"):
        ask(paths=[tmp_path / "nowhere.npz"])
    assert world.seen == []


def test_a_table_needs_no_label(world, ask, tmp_path):
    table = tmp_path / "patients.csv"
    table.write_text("name,v,u\nx,1,3\n\ny,3,1\n")
    found = ask(paths=[table])
    assert [a.node for a in found.answers] == ["a", "b"]
    assert found.names == (f"{table}:2", f"{table}:4")
    table.write_text("name,v,u\nx,1,99.875\n")
    with pytest.raises(DataError, match="line 2, column u: outside") as caught:
        ask(paths=[table])
    assert "99.875" not in str(caught.value)


def test_runs_are_named_by_eight_digits_or_more(world, ask):
    assert ask(run=world.plan.digest()[:8]).run == world.plan.digest()
    for run, fault in (
        (world.plan.digest()[:7], "is not a digest"),
        ("x" * 64, "is not a digest"),
        ("", "is not a digest"),
        ("0" * 64, "no model of this digest"),
    ):
        with pytest.raises(ConfigError, match=fault) as caught:
            ask(run=run)
        assert caught.value.hint
    digest = world.plan.digest()
    alike = [pb.ServedModel(plan_digest=digest[:60] + end) for end in ("aaaa", "bbbb")]
    with pytest.raises(ConfigError, match="2 runs begin with it"):
        choose(alike, digest[:10])


def test_models_are_listed(world):
    world.nodes["b"].up = False
    ((model, nodes),) = list_models(world.settings)
    assert (model.run, model.plan, nodes) == (world.plan.digest(), world.plan, {"a": True, "b": False})
