"""What a privacy officer reads of a masked plan: streams, threshold, and what the coordinator learns all the same."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from fedsecure.cli import run
from fedsecure.errors import ConfigError
from fedsecure.masked_plan import masked_exchanges
from fedsecure.methods import build_method
from fedsecure.plan import Plan
from fedsecure.policy import Policy
from fedsecure_coordinator.setup import submit_plan
from fedsecure_coordinator.store.journal import Journal
from fedsecure_node.plans.approvals import approve
from fedsecure_node.plans.describe import describe
from fedsecure_node.plans.masked_words import masks_json

FIVE = {"min_nodes": 4, "nodes": ["a", "b", "c", "d", "e"]}
THREE = {"min_nodes": 3, "nodes": ["a", "b", "c"]}


def a_plan(method, cohort=FIVE, secagg="required"):
    raw = {
        "format": 1,
        "name": "p",
        "rounds": 2,
        "task": {"kind": "image", "classes": ["0", "1"], "shape": [1, 8, 8]},
        "model": {"name": "mlp", "hidden": [4]},
        "method": method,
        "cohort": cohort,
        "secagg": secagg,
    }
    return Plan.model_validate(raw, strict=False)


def a_policy(**release):
    return Policy.model_validate(
        {"format": 1, "plans": {"methods": ["fedspm", "fedavg", "fedaf"]}, "release": release}, strict=False
    )


def words(plan, policy=None):
    return "\n".join(describe(plan, policy, build_method(plan)))


def test_a_masked_plan_names_its_streams_its_threshold_and_what_is_learned():
    text = words(a_plan({"name": "fedspm", "parametrisation": "explicit", "share_counts": True}))
    for part in (
        "inside a masked sum of at least 4 of 5 nodes; the coordinator sees that sum",
        "masks: required",
        "cohort: a, b, c, d, e; at least 4 of these 5 nodes must be in a sum before it is unmasked, so up to 1",
        "masked in exchange 'counts', vectors of 48 bytes in place of the tensors:",
        "fedspm.counts.node_records: node_records (6 elements of 64 bits",
        "masked in exchange 'update', vectors of ",
        "f = 27, B = 1000, values times up to 10000000 records",
        "the exact sum over the nodes that were there to the end, at least 4 of 5",
        "each node's own node_records, mass: every node fills a row of its own, so the sum hides nothing of it",
        "routing head (bias and xi; gamma and xi in the paper)",
        "2 nodes collude with it",
        "with 4 everything is known",
        "two rounds whose nodes differ by one",
        "not detected: a coordinator that announces another sum",
        "not detected: a node whose values are made up",
    ):
        assert part in text, part
    assert "not masked" not in text
    assert "WARNING" not in text


def test_a_plan_that_asks_for_more_nodes_than_the_threshold_is_described_by_that():
    plan = a_plan({"name": "fedavg", "local_steps": 2}, {**FIVE, "min_nodes": 5})
    text = words(plan)
    for part in (
        "inside a masked sum of at least 5 of 5 nodes",
        "at least 5 of these 5 nodes must be in a sum before it is unmasked, so none may drop out",
        "there to the end, at least 5 of 5",
    ):
        assert part in text, part
    assert "at least 4" not in text
    found = masks_json(plan, masked_exchanges(plan, build_method(plan)))
    assert (found["threshold"], found["least"], found["dropouts"], found["colluders"]) == (4, 5, 0, 2)
    assert "at least 5 of 5" in found["coordinator_learns"][0]


def test_images_of_fedaf_are_said_not_to_be_covered_and_a_small_cohort_is_warned_of():
    text = words(a_plan({"name": "fedaf"}, THREE))
    assert "every condensed image and label as it is: they are a union, not a sum, and no mask covers them" in text
    assert "of a class that a single node holds, that node's own statistics" in text
    assert "WARNING: a sum of 3 nodes hides little of each" in text
    assert "of images, labels: the coordinator sees every value as it is" in text


def test_an_optional_plan_is_not_sold_as_a_masked_one():
    plan = a_plan({"name": "fedavg", "local_steps": 2}, secagg="optional")
    assert "masks: optional - decided as the run starts" in words(plan, a_policy())
    assert "or, in a run that starts without a manifest that all nodes signed, not masked" in words(plan, a_policy())
    insisted = words(plan, a_policy(masks="required"))
    assert "required by this institution - it gives nothing to a run that is not masked" in insisted
    assert "not masked, so the coordinator sees" not in insisted


def test_a_plain_plan_reads_as_before_and_a_policy_that_requires_masks_refuses_it():
    plan = a_plan({"name": "fedavg", "local_steps": 2}, secagg="off")
    text = words(plan, a_policy(masks="required"))
    assert "not masked, so the coordinator sees this node's own values" in text
    assert "\nmasks:" not in text
    assert "  - NO  release.masks: secagg 'off'" in text
    assert "  - yes release.masks" in words(plan, a_policy())


def test_the_same_for_programs():
    plan = a_plan({"name": "fedspm"})
    found = masks_json(plan, masked_exchanges(plan, build_method(plan)))
    assert (found["threshold"], found["least"], found["dropouts"], found["colluders"]) == (4, 4, 1, 2)
    assert [s["name"] for s in found["exchanges"]["update"]] == ["fedspm.update.records", "fedspm.update.shared.bias"]
    assert json.loads(json.dumps(found)) == found
    off = a_plan({"name": "fedspm"}, secagg="off")
    assert masks_json(off, masked_exchanges(off, build_method(off))) == {"secagg": "off"}


PLAN = """
format = 1
name = "tiny"
rounds = 1
secagg = "required"
model = {name = "mlp", hidden = [8]}
method = {name = "fedavg", local_steps = 2}
[task]
kind = "image"
classes = ["0", "1"]
shape = [1, 8, 8]
[cohort]
min_nodes = 3
nodes = ["a", "b", "c"]
"""


def test_plan_check_and_show_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    assert run(["plan", "check", str(path)]) == 0
    capsys.readouterr()
    assert run(["plan", "show", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["masks"]["threshold"] == 3
    path.write_text(PLAN.replace("min_nodes = 3\nnodes", "min_nodes = 2\nnodes"))
    assert run(["plan", "check", str(path)]) == ConfigError.exit_code
    error = capsys.readouterr().err.splitlines()
    assert "cohort.min_nodes 2 where no sum is unmasked of fewer than 3 of 3 nodes" in error[0]


def test_a_sum_that_no_ring_holds_is_found_when_the_plan_is_checked(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedsecure.methods.averaging.PARAMETER_BOUND", 1e13)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    assert run(["plan", "check", str(path)]) == ConfigError.exit_code
    assert "error: stream fedavg.round.model.head.bias: a sum of 3 nodes" in capsys.readouterr().err


def test_what_no_ring_holds_is_neither_approved_nor_submitted(node, plan_of, tmp_path, monkeypatch):
    plan = plan_of(method={"name": "fedavg", "local_steps": 2}, cohort=THREE, secagg="required")
    node.store.plans.record(plan, plan.digest(), "joining", 1)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        with monkeypatch.context() as patched:
            patched.setattr("fedsecure.methods.averaging.PARAMETER_BOUND", 1e13)
            with pytest.raises(ConfigError, match=r"fedavg\.round\..* can wrap around"):
                approve(node.store, node.settings.policy, plan.digest(), by="ada")
            with pytest.raises(ConfigError, match=r"fedavg\.round\..* can wrap around"):
                submit_plan(journal, path, max_nodes=10)
        assert node.store.plans.get(plan.digest()).decision == "pending"
        assert journal.runs() == []
        assert approve(node.store, node.settings.policy, plan.digest(), by="ada").decision == "approved"
        assert submit_plan(journal, path, max_nodes=10)[1]
