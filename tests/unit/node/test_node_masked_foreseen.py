"""What is said before a masked run begins: that no cohort of its nodes is trusted, or that it begins from a model of
which this node gave before."""

from __future__ import annotations

import json

import pytest
from institutions import NODES

from fedsecure.cli import run
from fedsecure.plan import Plan, load_plan
from fedsecure_node.cli.first_steps import check_node
from fedsecure_node.masking.foreseen import begun_before
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

PLAN = """
format = 1
name = "{name}"
rounds = 1
seed = {seed}
secagg = "{secagg}"
model = {{name = "mlp", hidden = [8]}}
method = {{name = "fedavg", local_steps = 2}}
[task]
kind = "image"
classes = ["0", "1"]
shape = [1, 8, 8]
[cohort]
min_nodes = 3
nodes = {nodes}
"""
LACKING = "no cohort of exactly the nodes hospital-a, hospital-b, hospital-c is trusted by node hospital-a"
TRUST = "fedsecure node cohort trust FILE --digest DIGEST"


@pytest.fixture
def plan_at(tmp_path):
    """plan_at(…): the file of a plan for the three institutions, and the plan."""

    def make(name="tiny", seed=0, secagg="required"):
        path = tmp_path / f"{name}-{seed}-{secagg}.toml"
        path.write_text(PLAN.format(name=name, seed=seed, secagg=secagg, nodes=json.dumps(list(NODES))))
        return path, load_plan(path)[0]

    return make


def offered(institutions, *plans: Plan):
    """They are offered to the first node, which joined none yet."""
    with Store(load_settings(institutions.folder(NODES[0])).store) as store:
        for plan in plans:
            store.plans.record(plan, plan.digest(), "running", 1)


def told(institutions, capsys):
    """What ``node plans`` warns of, by the names of the plans."""
    folder = str(institutions.folder(NODES[0]))
    capsys.readouterr()
    assert run(["node", "plans", "--dir", folder]) == 0
    said = capsys.readouterr().out
    assert run(["node", "plans", "--json", "--dir", folder]) == 0
    found = {plan["name"]: plan["warnings"] for plan in json.loads(capsys.readouterr().out)["plans"]}
    assert all(f"WARNING: {line}" in said for lines in found.values() for line in lines)
    return found


def test_node_plans_names_a_cohort_that_is_not_trusted(institutions, plan_at, capsys):
    offered(institutions, plan_at("masked")[1], plan_at("plain", secagg="off")[1], plan_at("may", secagg="optional")[1])
    found = told(institutions, capsys)
    for name in ("masked", "may"):
        (line,) = found[name]
        assert line.startswith(LACKING)
        assert TRUST in line
        assert "leaves the run at its first masked exchange" in line
    assert found["plain"] == []
    institutions.trusted()
    assert told(institutions, capsys) == {"masked": [], "may": [], "plain": []}


def test_node_check_names_a_cohort_that_is_not_trusted(institutions, plan_at):
    def finding(path):
        return next(f for f in check_node(institutions.folder(NODES[0]), path) if f.what == "plan and cohorts")

    assert "which has no store yet" in str(finding(plan_at()[0]).error)
    assert not (institutions.folder(NODES[0]) / "store").exists()
    offered(institutions)
    assert str(finding(plan_at()[0]).error) == LACKING
    assert TRUST in finding(plan_at()[0]).error.hint
    assert finding(plan_at(secagg="optional")[0]).error is None
    assert LACKING in finding(plan_at(secagg="optional")[0]).line
    assert finding(plan_at(secagg="off")[0]).line == "the plan needs none: it has no masks"
    institutions.trusted()
    found = finding(plan_at()[0])
    assert (found.line, found.error) == ("cohort cardiology, version 1, is trusted here", None)


def test_node_plans_names_a_plan_of_the_same_beginning(institutions, plan_at, capsys):
    institutions.trusted()
    first, again, other = plan_at("first")[1], plan_at("again")[1], plan_at("other", seed=1)[1]
    offered(institutions, first, again, other)
    assert told(institutions, capsys) == {"first": [], "again": [], "other": []}
    with Store(load_settings(institutions.folder(NODES[0])).store) as store:
        store.marks.keep(first.digest(), ["0" * 64])
    found = told(institutions, capsys)
    (line,) = found["again"]
    assert f"the same model as plan first ({first.digest()[:12]})" in line
    assert "REPLAYED" in line
    assert found["first"] == found["other"] == []


def test_what_begins_alike(plan_at):
    plan = plan_at("p")[1]
    assert begun_before(plan, [plan]) == ""
    assert begun_before(plan, [plan_at("q")[1]])
    assert begun_before(plan_at("r", secagg="off")[1], [plan]) == ""
    assert begun_before(plan_at("q", seed=1)[1], [plan]) == ""
