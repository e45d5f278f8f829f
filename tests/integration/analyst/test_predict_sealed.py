"""Sealed prediction over mutual TLS: the right node answers, the coordinator reads nothing, every fault has a name."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.analyst.models import choose
from fedsecure.analyst.session import Question, list_models, predict
from fedsecure.errors import (
    CertificateError,
    ConfigError,
    DataError,
    NodeUnreachable,
    PolicyError,
    RemoteProtocolError,
    WireError,
)
from fedsecure.method import Prediction
from fedsecure.prediction.answers import encode_prediction
from fedsecure.tensors import Tensors
from fedsecure.wire.v1 import prediction_pb2 as pb

FOR_A, FOR_B = [3.0, 1.0], [1.0, 3.0]


@pytest.fixture
def ask(world, queries, toy_method):
    def run(rows=(FOR_A, FOR_B, FOR_A), settings=None, **how):
        paths = how.pop("paths", None) or (queries(rows),)
        question = Question(tuple(paths), how.pop("run", world.plan.digest()), **how)
        return predict(settings or world.settings, question, toy_method)

    return run


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
    world.max_query_bytes = 4096
    ask(np.tile(np.asarray(FOR_A, np.float32), (200, 1)))
    sizes = [len(r.sealed) for r in world.seen if isinstance(r, pb.AskSealedRequest)]
    assert max(sizes) <= 4096
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
    table.write_text("name,v,u\nx,1,99\n")
    with pytest.raises(DataError, match="line 2, column u: outside") as caught:
        ask(paths=[table])
    assert "99" not in str(caught.value)


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


# --- a coordinator that cannot be trusted --------------------------------------------------------------------------


def test_plan_bytes_are_those_of_the_digest(world, ask):
    world.alter = lambda model: setattr(model, "canonical", model.canonical.replace(b'"toy"', b'"top"'))
    with pytest.raises(RemoteProtocolError, match="its bytes have another digest"):
        ask()


def test_routing_parameters_are_those_announced(world, ask):
    swapped = Tensors({"weights": np.eye(2, dtype=np.float32)[::-1].copy()}).to_bytes()
    honest = world.routing

    def tamper(model):
        world.routing = swapped

    world.alter = tamper
    with pytest.raises(RemoteProtocolError, match="routing parameters of run .*: the bytes have another digest"):
        ask()
    world.routing = honest
    assert world.asked() == []


@pytest.mark.parametrize(
    ("tensors", "fault"),
    [
        ({"weights": np.full((2, 2), np.nan, np.float32)}, "not finite"),
        ({"weights": np.zeros((3, 2), np.float32)}, "shape"),
        ({"other": np.zeros((2, 2), np.float32)}, "not named by the schema"),
        ({"weights": np.full((2, 2), 99, np.float32)}, "outside"),
    ],
)
def test_routing_parameters_fit_the_plan(world, ask, tensors, fault):
    world.routing = Tensors(tensors).to_bytes()
    with pytest.raises(RemoteProtocolError, match=fault):
        ask()
    assert world.asked() == []


def test_an_endless_download_is_not_begun(world, ask):
    world.alter = lambda model: setattr(model, "routing_bytes", 1 << 40)
    with pytest.raises(RemoteProtocolError, match="bytes are announced"):
        ask()


def test_a_download_goes_on_where_it_broke(world, ask, monkeypatch):
    monkeypatch.setattr("fedsecure.analyst.client.PAUSE_S", 0.01)
    world.cut = 70
    assert len(ask().answers) == 3
    offsets = [r.offset for r in world.seen if isinstance(r, pb.DownloadRoutingRequest)]
    assert offsets == [0, 70]


def test_keys_are_the_nodes_own(world, ask):
    a, b = world.nodes["a"], world.nodes["b"]
    good = a.statement
    for statement, error, fault in (
        (b.statement, CertificateError, "another's name"),
        (a.sign(life_ms=-1000), CertificateError, "ran out"),
        (a.sign(life_ms=48 * 3_600_000), RemoteProtocolError, "valid for 4[78] hours"),
        (pb.SignedStatement(), RemoteProtocolError, "label"),
    ):
        a.statement = statement
        with pytest.raises(error, match=fault):
            ask([FOR_A])
    assert world.asked() == []
    a.statement = good
    assert len(ask([FOR_A]).answers) == 1


def test_answers_are_the_asked_nodes_own(world, ask):
    a = world.nodes["a"]

    def by_another(outcome):
        outcome.prediction.node_id = "b"
        return outcome

    def to_another_query(outcome):
        outcome.prediction.query_digest = "0" * 64
        return outcome

    def of_another_shape(outcome):
        uniform = np.full((5, 2), 0.5, np.float32)
        return encode_prediction("a", outcome.prediction.query_digest, Prediction(uniform, uniform))

    for twist, fault in (
        (by_another, "node a: an answer in the name of 'b'"),
        (to_another_query, "node a: an answer to another query"),
        (of_another_shape, r"node a: a malformed answer: .* where float32 \[1, "),
        (lambda outcome: pb.Outcome(), "neither a prediction nor a refusal"),
    ):
        a.twist = twist
        with pytest.raises(RemoteProtocolError, match=fault):
            ask([FOR_A])


def test_an_answer_is_sealed_to_the_key_in_the_query(world, ask):
    world.nodes["a"].answer = lambda run, analyst, sealed: b"x" * 200
    with pytest.raises(RemoteProtocolError, match="node a: its answer is not sealed to the key in the query"):
        ask([FOR_A])


# --- connecting ----------------------------------------------------------------------------------------------------


def test_why_there_is_no_connection_is_named(world, ask, federation_of, tmp_path):
    away = world.settings.model_copy(update={"coordinator": "localhost:1"})
    with pytest.raises(WireError, match="connection refused"):
        ask(settings=away)
    strangers = federation_of(tmp_path / "strangers").enrol("analyst", "dr-weber")
    tls = world.settings.tls.model_copy(
        update={"key": strangers.key, "cert": strangers.cert, "ca": strangers.ca, "crl": None}
    )
    with pytest.raises(CertificateError, match="unknown CA"):
        ask(settings=world.settings.model_copy(update={"tls": tls}))
    node = world.federation.root / "node-a"
    tls = tls.model_copy(update={"key": node / "tls.key", "cert": node / "tls.crt", "ca": node / "ca.crt"})
    with pytest.raises(CertificateError, match="wrong role"):
        ask(settings=world.settings.model_copy(update={"tls": tls}))
    world.clock_ms = 600_000
    with pytest.raises(CertificateError, match="clock skew"):
        ask()
    with pytest.raises(ConfigError, match="the certificate is that of analyst dr-weber"):
        ask(settings=world.settings.model_copy(update={"analyst": "dr-rot"}))
