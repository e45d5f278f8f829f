"""From training by FedSPM to an answer: coordinator and nodes as processes of their own, the analyst at the command
line, and each way in which a query fails by its name."""

from __future__ import annotations

import json

import numpy as np
import pytest

SPM = {
    "name": "fedspm",
    "components": 2,
    "predict": {"steps": 2, "batch": 8},
    "route": {"steps": 2, "batch": 8},
    "router": {"name": "mlp", "hidden": [8]},
}
ASKING = {"analysts": ["dr-weber"], "max_records_per_hour": 200, "coordinator_routed": True}


@pytest.fixture
def trained(federation):
    """A federation whose run of FedSPM is over, with its nodes serving, and two analysts."""
    for node in federation.nodes:
        federation.policy(node, plans={"methods": ["fedspm"]}, prediction=ASKING)
    for name in ("dr-weber", "dr-moss"):
        made = federation.ask(
            *("analyst", "init", "--name", name, "--dir", federation.root / name, "--federation", "test"),
            *("--coordinator", federation.address),
        )
        federation.enrol("analyst", name, made["csr_fingerprint"])
    plan = federation.plan("routed", SPM, cohort={"min_nodes": 3, "nodes": list(federation.nodes)})
    federation.start_all()
    federation.wait(lambda: "listening" in federation.log("coordinator") or "serving" in federation.log("coordinator"))
    federation.submit(plan)
    federation.finish(plan)
    federation.plan_digest = plan.digest()
    federation.wait(lambda: reachable(federation) == list(federation.nodes))
    return federation


def reachable(federation):
    models = federation.ask("analyst", "models", "--dir", federation.root / "dr-weber")["models"]
    served = [m for m in models if m["run"] == federation.plan_digest]
    return sorted(node for m in served for node, there in m["nodes"].items() if there)


def queries(federation, x, name="x"):
    path = federation.root / f"{name}.npz"
    np.savez(path, x=x)
    return path


def predict(federation, path, *options, analyst="dr-weber"):
    return (
        *("predict", path, "--run", federation.plan_digest[:12], "--dir", federation.root / analyst),
        *options,
    )


def test_a_trained_model_answers_and_every_fault_has_its_name(trained):
    x = np.random.default_rng(4).random((10, 1, 8, 8), dtype=np.float32)
    path = queries(trained, x)
    answers = trained.ask(*predict(trained, path, "--scores"))["answers"]
    assert len(answers) == 10
    for answer in answers:
        assert answer["node"] == max(answer["scores"], key=answer["scores"].get)
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-3)
        assert not answer["fallback"]
    plain = trained.ask(*predict(trained, path, "--route-at", "coordinator"))["answers"]
    assert [a["node"] for a in plain] == [a["node"] for a in answers]
    for one, other in zip(answers, plain, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)

    code, told = trained.refused(*predict(trained, path, analyst="dr-moss"))
    assert (code, "prediction.analysts" in told) == (4, True), told
    code, told = trained.refused(*predict(trained, queries(trained, x[:, :, :7], "narrow")))
    assert code == 15, told
    code, told = trained.refused(*predict(trained, queries(trained, np.full_like(x, np.nan), "nan")))
    assert code == 15, told

    best = answers[0]["node"]
    listed = trained.ask("node", "queries", "--dir", trained.root / best)["queries"]
    asked = [q for q in listed if q["answered"]]
    assert {q["form"] for q in asked} == {"sealed", "plain"}
    assert sum(q["records"] for q in asked if q["form"] == "sealed") == sum(a["node"] == best for a in answers)
    assert trained.ask("node", "verify-log", "--dir", trained.root / best)["answers"] == len(asked)

    trained.stop(best)
    one = queries(trained, x[:1], "one")
    code, told = trained.refused(*predict(trained, one, "--wait", "3"))
    assert (code, best in told) == (20, True), told
    (answer,) = trained.ask(*predict(trained, one, "--fallback", "next"))["answers"]
    assert (answer["fallback"], answer["best"]) == (True, best)
    assert answer["node"] != best
    trained.start(best)
    trained.wait(lambda: best in reachable(trained))
    (answer,) = trained.ask(*predict(trained, one))["answers"]
    assert answer["node"] == best
    assert answer["probabilities"] == pytest.approx(answers[0]["probabilities"], abs=1e-6)
    assert "was its folder copied" not in trained.log("coordinator")
    assert json.dumps(float(x[0, 0, 0, 0])) not in trained.log("coordinator")
