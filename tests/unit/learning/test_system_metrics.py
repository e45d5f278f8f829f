"""System, average and routing accuracy, and the vote of methods that do not route."""

import json

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure.data.dataset import Dataset
from fedsecure.method import Prediction
from fedsecure.system_metrics import majority_vote, measure, routed_metrics, voted_metrics
from fedsecure.tensors import Tensors


class Oracle:
    """A router and heads that are told what to say: record value v is routed to node int(v), which answers
    ``labels[node]`` for everything."""

    nodes = ("a", "b", "c")
    labels = {"a": 0, "b": 1, "c": 1}

    def routing(self, server):
        return server

    def serving(self, server):
        return server

    def route(self, routing, x, *, device="cpu"):
        return np.eye(3)[x[:, 0].astype(int)]

    def predict(self, node, serving, local, x, *, device="cpu"):
        assert local["who"] == self.nodes.index(node)
        return Prediction(np.eye(2, dtype=np.float32)[[self.labels[node]] * len(x)], np.ones((len(x), 1), np.float32))


def records(routed_to, labels):
    x = np.array(routed_to, np.float32)[:, None]
    return Dataset(x, np.array(labels, np.int64), ("no", "yes"))


def test_system_average_and_routing_accuracy_by_hand():
    tests = {"a": records([0, 0, 1], [0, 1, 1]), "b": records([1, 0], [1, 0])}
    local = {n: Tensors({"who": np.array(i)}) for i, n in enumerate("abc")}
    found = routed_metrics(Oracle(), Tensors(), local, tests, {"a": 30, "b": 10, "c": 60})
    # a's records: to a (0, right), to a (0, wrong), to b (1, right); b's: to b (right), to a (right)
    assert found["system_accuracy"] == found["accuracy"] == pytest.approx(4 / 5)
    # by their own nodes: a says 0: one of three; b says 1: one of two
    assert found["average_accuracy"] == pytest.approx((30 * (1 / 3) + 10 * (1 / 2)) / 40)
    assert found["routing_accuracy"] == pytest.approx(3 / 5)


def test_a_node_without_heads_answers_nothing():
    tests = {"a": records([0, 1], [0, 1])}
    found = routed_metrics(Oracle(), Tensors(), {"a": Tensors({"who": np.array(0)})}, tests, {"a": 1})
    assert found["system_accuracy"] == pytest.approx(1 / 2)


def test_the_vote_takes_the_commonest_label_and_of_ties_the_smallest():
    votes = np.array([[2, 1, 0, 3], [2, 0, 1, 1], [1, 0, 2, 3], [0, 1, 3, 1]])
    assert majority_vote(votes).tolist() == [2, 0, 0, 1]
    assert majority_vote(np.empty((3, 0), np.int64)).tolist() == []


def test_one_model_for_all_votes_with_itself(make_plan, make_data, run_rounds):
    plan = make_plan("fedavg", local_epochs=3)
    data = {"one": make_data((5, 5, 5)), "two": make_data((3, 6, 3), 1)}
    server, local, _ = run_rounds(plan, data)
    tests = {"one": make_data((4, 0, 3), 5), "two": make_data((2, 2, 2), 6)}
    found = voted_metrics(plan, server.under("model"), tests, {"one": 15, "two": 12})
    pooled = Dataset(
        np.concatenate([t.x for t in tests.values()]),
        np.concatenate([t.y for t in tests.values()]),
        data["one"].classes,
    )
    from fedsecure.methods import build_method

    sizes = {n: len(d) for n, d in data.items()}
    whole = measure(plan, build_method(plan), server, local, pooled, tests, sizes)
    assert whole["system_accuracy"] == found["system_accuracy"] == pytest.approx(whole["accuracy"])
    assert "routing_accuracy" not in whole
    assert "system_accuracy" not in measure(plan, build_method(plan), server, local, pooled, {}, sizes)


def test_a_method_that_routes_has_no_metrics_without_the_nodes_tests(make_plan, make_data, run_rounds):
    from fedsecure.methods import build_method

    plan = make_plan("fedspm")
    data = {"one": make_data((5, 5, 5)), "two": make_data((3, 6, 3), 1)}
    server, local, _ = run_rounds(plan, data, rounds=1)
    assert measure(plan, build_method(plan), server, local, data["one"], {}, {"one": 15, "two": 12}) == {}


PLAN = """
format = 1
name = "dual"
rounds = 3
[task]
kind = "image"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
shape = [3, 8, 8]
[model]
name = "mlp"
hidden = [8]
[method]
name = "fedspm"
router = {name = "mlp", hidden = [8]}
predict = {steps = 2}
route = {steps = 2}
[cohort]
min_nodes = 2
nodes = ["node-1", "node-2"]
[simulation]
data = {kind = "digits"}
evaluate_every = 2
[simulation.partition]
kind = "dual-heterogeneity"
nodes = 2
"""


def test_simulate_reports_the_system_after_every_second_round_and_the_last(tmp_path, capsys):
    (tmp_path / "plan.toml").write_text(PLAN)
    assert (
        run(["simulate", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "out"), "--threads", "1", "--json"]) == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert ["system_accuracy" in entry for entry in result["rounds"]] == [False, True, True]
    for name in ("system_accuracy", "average_accuracy", "routing_accuracy"):
        assert result[f"final_{name}"] == result["rounds"][-1][name]
    assert result["final_accuracy"] == result["final_system_accuracy"]
    assert 0 < result["final_routing_accuracy"] <= 1
