"""Attacks on what nodes of FedAvg, FedDRM and FedSPM send: gradients in the update and in the sum, the routing head,
the final model, on random halves that are trained again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from fedsecure.cli import run
from fedsecure.config import validate
from fedsecure.data.dataset import Dataset
from fedsecure.data.partition import Dealt
from fedsecure.errors import ConfigError
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.report.render import html
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.spm.audit import SpmProfile, audit_spm
from fedsecure_attacks.spm.final import margins_of, rmia, without_pool
from fedsecure_attacks.spm.gradients import Gradients
from fedsecure_attacks.spm.halves import HalfCache, make_half, observed_rounds
from fedsecure_attacks.spm.results import spm_report, theory_of
from fedsecure_attacks.spm.tracing import Traced, area_of, implied_mean
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.strictjson import dump
from fedsecure_attacks.verdict import Word

CLASSES = ("a", "b", "c")
NODES = ("u", "v", "w")
#: One step over all records: the update is the mean gradient itself.
WHOLE = {"steps": 1, "batch": 1000, "momentum": 0.0, "weight_decay": 0.0, "lr": 0.1}
ROUTER = {"name": "mlp", "hidden": [12]}
ONE_STEP: dict[str, dict[str, Any]] = {
    "fedavg": {
        "name": "fedavg", "local_steps": 1, "batch": 1000, "momentum": 0.0, "weight_decay": 0.0, "lr": 0.1,
    },
    "fedspm": {"name": "fedspm", "components": 2, "router": ROUTER, "predict": WHOLE, "route": WHOLE},
    "feddrm": {"name": "feddrm", "router": ROUTER, "predict": WHOLE, "route": WHOLE},
    "feddrm-shared": {"name": "feddrm", "backbone": "shared", "branch": 12, "predict": WHOLE, "route": WHOLE},
}  # fmt: skip
LONG = {"steps": 40, "batch": 32, "lr": 0.1}
OVERFITTED = {"name": "fedspm", "components": 1, "router": ROUTER, "predict": LONG, "route": {**LONG, "lr": 0.05}}


def plan(method: dict[str, Any], rounds: int = 2, **changes: Any) -> Plan:
    raw = {
        "format": 1,
        "name": "p",
        "rounds": rounds,
        "task": {"kind": "image", "classes": CLASSES, "shape": [1, 6, 6]},
        "model": {"name": "mlp", "hidden": [12]},
        "method": method,
        "cohort": {"min_nodes": 3, "nodes": NODES},
        **changes,
    }
    return validate(Plan, raw, "plan")


def people(records: int, seed: int, shift: float = 0.0) -> Dataset:
    rng = np.random.default_rng(seed)
    y = np.arange(records) % 3
    x = rng.random((records, 1, 6, 6)) * 0.6 + 0.15 * y[:, None, None, None] + shift
    return Dataset(x.astype(np.float32), y.astype(np.int64), CLASSES)


@pytest.fixture(scope="module")
def dealt() -> Dealt:
    train = {node: people(n, i, 0.1 * i) for i, (node, n) in enumerate(zip(NODES, (90, 60, 75), strict=True))}
    tests = {node: people(90, 10 + i, 0.1 * i) for i, node in enumerate(NODES)}
    return Dealt.per_node(train, tests)


def labelled(data: Dataset) -> Labelled:
    return Labelled("people", data.x, data.y)


def half_of(inside: np.ndarray, method: str, dealt: Dealt, **changes: Any):
    p = plan(ONE_STEP[method], **changes)
    return p, build_method(p), make_half(p, dealt.train, "u", inside, (0, 1))


@pytest.mark.parametrize("method", ONE_STEP)
def test_an_update_of_one_step_is_the_mean_gradient(dealt, method):
    """With coordinates of gradients and updates, signs, rates and weights right, it is so to single precision."""
    inside = np.arange(90) % 2 == 0
    p, built, half = half_of(inside, method, dealt)
    first = half.rounds[0]
    assert first.number == 0
    assert first.records == (45, 45 + 60 + 75)
    pool = labelled(dealt.train["u"])
    gradients = Gradients.under(p, built, first, "u", labelled(dealt.tests["u"]), 0)
    due = gradients.of(pool.x, pool.y)[inside].mean(axis=0)
    found = gradients.update(summed=False)
    assert np.abs(due).max() > 1e-3
    np.testing.assert_allclose(found, due, atol=2e-3 * np.abs(due).max())


def test_a_sum_holds_every_nodes_mean_gradient(dealt):
    inside = np.ones(90, np.bool_)
    p, built, half = half_of(inside, "fedavg", dealt, secagg="required")
    gradients = Gradients.under(p, built, half.rounds[0], "u", labelled(dealt.tests["u"]), 0)
    due = sum(gradients.of(d.x, d.y).sum(axis=0) for d in dealt.train.values()) / 90
    np.testing.assert_allclose(gradients.update(summed=True), due, atol=2e-3 * np.abs(due).max())


def test_exact_mean_gradients_are_told_as_theory_says(dealt):
    inside = np.random.default_rng(3).random(90) < 0.5
    p, built, half = half_of(inside, "fedavg", dealt)
    gradients = Gradients.under(p, built, half.rounds[0], "u", labelled(dealt.tests["u"]), 0)
    pool, others = labelled(dealt.train["u"]), labelled(dealt.tests["u"])
    traced = Traced.of(pool, others, gradients.of(pool.x, pool.y), gradients.of(others.x, others.y))
    exact = traced.exact(inside)
    assert exact is not None
    area = auc(Scores.of(exact[0], inside))
    assert area > 0.6
    assert area_of(exact[1]) == pytest.approx(area, abs=0.06)
    assert traced.exact(np.zeros(90, np.bool_)) is None


def test_a_routing_head_at_its_optimum_implies_the_nodes_mean():
    """What B2 rests on: at the optimum, over the records it was fitted to, the implied mean of h is the node's own to
    five digits. Read off with people who were not among them, most of its deviation is lost."""
    rng = np.random.default_rng(0)
    n, d = 60, 6
    h = torch.tensor(rng.standard_normal((3 * n, d)) + 0.5 * np.repeat(np.arange(3), n)[:, None])
    node = torch.tensor(np.repeat(np.arange(3), n))
    weights, bias = (torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in ((3, d), (3,)))
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(h @ weights.T + bias, node)
        value.backward()
        return value

    optimizer.step(loss)
    posterior = torch.softmax(h @ weights.T + bias, dim=1).detach().numpy()[:, 0]
    true = h[:n].mean(dim=0).numpy()
    np.testing.assert_allclose(implied_mean(h.numpy(), posterior), true, atol=1e-4)
    fresh = rng.standard_normal((3 * n, d)) + 0.5 * np.repeat(np.arange(3), n)[:, None]
    read = torch.softmax(torch.tensor(fresh) @ weights.T + bias, dim=1).detach().numpy()[:, 0]
    assert np.linalg.norm(implied_mean(fresh, read) - true) > 0.5 * np.linalg.norm(true)


def test_halves_are_read_again_and_never_stale_ones(dealt, tmp_path):
    p, inside = plan(ONE_STEP["fedspm"]), np.arange(90) % 2 == 0
    cache = HalfCache(tmp_path, p, dealt.train, "u")
    first, again = cache.half(inside, (0,), 0), cache.half(inside, (0,), 0)
    assert (cache.made, cache.hits) == (1, 1)
    assert first.server == again.server
    assert first.local == again.local
    assert first.rounds[0].total == again.rounds[0].total
    x = dealt.train["v"].x.copy()
    x[0, 0, 0, 0] += 1 / 255
    changed = HalfCache(tmp_path, p, {**dealt.train, "v": Dataset(x, dealt.train["v"].y, CLASSES)}, "u")
    changed.half(inside, (0,), 0)
    cache.half(~inside, (0,), 0)
    cache.half(inside, (0,), 1)
    assert (cache.made, changed.made, changed.hits) == (3, 1, 0)
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:900])
    assert cache.half(inside, (0,), 0).server == first.server
    assert cache.made == 4


def test_rounds_that_are_observed():
    assert observed_rounds(12, 4) == (0, 4, 7, 11)
    assert observed_rounds(3, 4) == (0, 1, 2)
    assert observed_rounds(9, 1) == (0,)


@pytest.fixture(scope="module")
def leaking(dealt, tmp_path_factory):
    """FedSPM that overfits, masked: a report, twice from one cache."""
    p, folder = plan(OVERFITTED, rounds=2, secagg="required"), tmp_path_factory.mktemp("halves")
    profile = SpmProfile("u", halves=4, observed=2)
    audits = [audit_spm(p, dealt, profile, folder) for _ in range(2)]
    return audits[0], [dump(spm_report(audit)) for audit in audits]


def test_a_model_that_overfits_is_a_leak(leaking):
    audit, _ = leaking
    assert audit.verdict.word is Word.LEAK, audit.verdict
    assert all(control.passed for control in audit.controls), audit.controls
    assert audit.attacks["final-lira"].auc > 0.6
    assert audit.attacks["combined"].auc > 0.6
    assert {
        "gradient-node",
        "gradient-sum",
        "loss-drop-sum",
        "routing-head",
        "routing-posterior-calibrated",
        "final-rmia",
    } <= set(audit.attacks)


def test_what_masks_hide_does_not_count(leaking):
    audit, _ = leaking
    assert set(audit.hidden) == {
        f"{name}-node{more}" for name in ("gradient", "loss-drop") for more in ("", "-calibrated")
    }
    judged = {result.name: result.rates for result in audit.results}
    assert not judged["gradient-node"]
    assert judged["gradient-sum"]
    assert not any(name in audit.verdict.reason for name in audit.hidden)


def test_the_report_is_strict_and_the_same_twice(leaking):
    def refuse(name: str) -> None:
        raise AssertionError(name)

    audit, (first, second) = leaking
    assert first == second
    report = json.loads(first, parse_constant=refuse)
    assert check(report)["mode"] == "spm"
    assert "gradient-sum" in html(report)
    assert report["exit_code"] == 10
    assert report["plan"]["rounds_observed"] == [1, 2]
    assert set(report["controls"]) == {"planted", "null", "oracle"}
    assert "scores" not in first
    closed = theory_of(audit)
    assert closed["closed form, node"] > closed["closed form, sum"] > 0


def test_a_model_that_does_not_move_leaks_nothing(dealt):
    """At a rate below single precision no update holds anything, and nothing may be called a leak."""
    still = {"steps": 1, "batch": 16, "lr": 1e-30}
    method = {"name": "fedspm", "components": 1, "router": ROUTER, "predict": still, "route": still}
    found = audit_spm(plan(method, rounds=1), dealt, SpmProfile("u", halves=4, observed=1, seed=5))
    assert found.verdict.word is Word.INCONCLUSIVE, found.verdict
    assert all(abs(attack.auc - 0.5) < 0.12 for attack in found.attacks.values())
    assert not found.hidden


@pytest.mark.parametrize(
    ("method", "profile", "said"),
    [
        ({"name": "fedaf", "ipc": 1}, SpmProfile(), "method 'fedaf' sends no trained parameters"),
        (ONE_STEP["fedavg"], SpmProfile(node="x"), r"^--node x: .*\(it has u, v, w\)$"),
    ],
)
def test_what_cannot_be_asked(dealt, method, profile, said):
    with pytest.raises(ConfigError, match=said):
        audit_spm(plan(method), dealt, profile)


def test_too_few_people(dealt):
    few = Dealt.per_node({**dealt.train, "u": people(19, 0)}, dealt.tests)
    with pytest.raises(ConfigError, match="^node u: 19 records"):
        audit_spm(plan(ONE_STEP["fedavg"]), few, SpmProfile())
    out = Dealt.per_node(dealt.train, {**dealt.tests, "u": people(12, 10)})
    with pytest.raises(ConfigError, match="12 records that it did not train on"):
        audit_spm(plan(ONE_STEP["fedavg"]), out, SpmProfile("u"))
    with pytest.raises(ValueError, match="3 halves"):
        SpmProfile(halves=3)


def test_people_who_are_candidates_teach_no_population():
    pool = labelled(people(30, 0))
    both = Labelled("both", np.concatenate([pool.x[:5], people(10, 1).x]), np.arange(15) % 3)
    assert len(without_pool(both, pool)) == 10


def test_final_model_scores_point_the_right_way():
    p = np.array([[0.9, 0.5, 0.1], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])
    population = [np.array([0.1, 0.4, 0.6]), np.array([0.5, 0.5, 0.5]), np.array([0.5, 0.5, 0.5])]
    scores = rmia(list(p), population, 0)
    assert scores[0] > scores[1] > scores[2]
    assert (np.diff(margins_of(p[0])) < 0).all()


PLAN = """
format = 1
name = "tiny"
rounds = 1
model = {name = "mlp", hidden = [6]}
method = {name = "fedavg", local_steps = 2}
[task]
kind = "image"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
shape = [1, 8, 8]
[cohort]
min_nodes = 3
[simulation]
data = {kind = "digits"}
partition = {kind = "dirichlet", nodes = 3, alpha = 5.0}
limit = 240
"""


def test_the_command(tmp_path, capsys):
    path, out = tmp_path / "plan.toml", tmp_path / "out"
    path.write_text(PLAN)
    command = ["audit", "spm", str(path), "--halves", "4", "--observed", "1", "--out", str(out)]
    assert run(command) == 10  # two steps from some forty records: an update of that is nearly their mean gradient
    assert capsys.readouterr().out.startswith("LEAK: ")
    report = json.loads((out / "report.json").read_text())
    assert report["verdict"] == "LEAK"
    assert (out / "report.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", ["spm", "canaries"])
def test_plans_that_are_not_what_they_should_be(tmp_path, capsys, mode):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN[: PLAN.index("[simulation]")])
    for given, said in ((path, "no [simulation] table"), (tmp_path, "a folder"), (tmp_path / "x", "no such file")):
        assert run(["audit", mode, str(given)]) == 2
        assert said in capsys.readouterr().err


def test_a_plan_without_privacy_has_nothing_to_contradict(tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    assert run(["audit", "canaries", str(path), "--json"]) == 2
    assert "no [privacy] table" in capsys.readouterr().err
