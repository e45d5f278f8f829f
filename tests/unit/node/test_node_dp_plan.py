"""``fedsecure node dp-plan``: what a private plan costs this node's own records."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure.data.fingerprint import record_digests
from fedsecure.plan import load_plan
from fedsecure.privacy.accounting import epsilon
from fedsecure.privacy.costs import affordable_rounds, count_spend, plan_spends
from fedsecure.privacy.entries import ChargedFor
from fedsecure.privacy.ledger import Ledger
from fedsecure.privacy.spend import Spend
from fedsecure_node.cli.first_steps import init_node
from fedsecure_node.settings import load_settings
from fedsecure_node.store.store import Store

PLAN = """
format = 1
name = "heart"
rounds = 20
[task]
kind = "image"
classes = ["0", "1", "2"]
shape = [1, 4, 4]
[model]
name = "convnet"
depth = 1
[method]
name = "{method}"
{settings}
[privacy]
kind = "{kind}"
sigma = {sigma}
{more}
"""
COUNTS = (120, 60, 5)
POLICY = 'format = 1\n[plans]\nmethods = ["fedaf", "feddm", "fedavg"]\n[privacy]\nepsilon = 2.0\n'


class Site:
    """A node's folder with 185 records, and what is typed in it."""

    def __init__(self, folder, capsys):
        self.folder, self._capsys = folder, capsys
        init_node(folder, node="hospital-a", federation="heart-study", coordinator="localhost:1")
        y = np.repeat(np.arange(3), COUNTS)
        x = np.random.default_rng(3).random((len(y), 1, 4, 4), dtype=np.float32)
        np.savez(folder / "records.npz", x=x, y=y)
        config = folder / "node.toml"
        text = config.read_text(encoding="utf-8").replace('"folder"\npath = "data"', '"npz"\npath = "records.npz"')
        config.write_text(text, encoding="utf-8")
        self.policy(POLICY)

    @property
    def settings(self):
        return load_settings(self.folder)

    def policy(self, text):
        (self.folder / "policy.toml").write_text(text, encoding="utf-8")

    def plan(self, method="fedavg", settings="local_steps = 1", kind="dp-sgd", sigma=2.0, more="batch = 20"):
        path = self.folder / "plan.toml"
        text = PLAN.format(method=method, settings=settings, kind=kind, sigma=sigma, more=more)
        path.write_text(text, encoding="utf-8")
        return path, load_plan(path)[0]

    def spent(self, *spends):
        """The ledger holds these for this node's records."""
        Store(self.settings.store).close()
        with Ledger(self.settings.ledger) as ledger:
            data_set = ledger.data_set(record_digests(self.settings.data))
            what = ChargedFor("ab" * 32, "before", 0, "round", 0, "hospital-a", "csprng", "dp-sgd")
            ledger.charge(data_set, spends, cap=1e6, delta=1e-3, what=what, epsilon=epsilon)

    def type(self, *words, code=0):
        """(stdout, stderr) of one command line."""
        self._capsys.readouterr()
        assert run(["node", "dp-plan", *map(str, words), "--dir", str(self.folder)]) == code, self._capsys.readouterr()
        return self._capsys.readouterr()


@pytest.fixture
def site(tmp_path, capsys):
    return Site(tmp_path / "site", capsys)


def test_a_table_for_people_marks_the_plans_own_row(site):
    path, plan = site.plan()
    out, err = site.type(path)
    assert err == ""
    assert f"plan heart, digest {plan.digest()}" in out
    assert "fedavg by dp-sgd, 20 rounds, csprng noise" in out
    assert "185 records, delta 0.000541" in out
    (own,) = [line for line in out.splitlines() if line.startswith("* ") and "own" not in line]
    whole = epsilon(plan_spends(plan, 185, COUNTS), 1 / 1850)
    assert own.split()[1:4] == ["2", f"{whole:.4g}", f"{whole:.4g}"]
    assert len([line for line in out.splitlines() if line.startswith("  ")]) == 1 + 5  # header, and sigma around it


def test_json_holds_what_the_accountant_says(site):
    path, plan = site.plan()
    site.spent(Spend(4.0, 1.0, 2))
    found = json.loads(site.type(path, "--json", "--sigma", "5")[0])
    history, delta = (Spend(4.0, 1.0, 2),), 1 / 1850
    assert (found["records"], found["cap"], found["refused"]) == (185, 2.0, [])
    assert found["spent"] == epsilon(history, delta)
    assert [row["sigma"] for row in found["costs"]] == [2.0, 5.0]
    whole = plan_spends(plan, 185, COUNTS)
    assert found["costs"][0] == {
        "sigma": 2.0,
        "epsilon": epsilon(whole, delta),
        "total": epsilon((*history, *whole), delta),
        "rounds": affordable_rounds(plan, 185, COUNTS, history, 2.0, delta),
    }
    assert found["costs"][0]["rounds"] < found["costs"][1]["rounds"] == 20
    with Ledger(site.settings.ledger, "read") as ledger:
        assert ledger.counter == 1  # nothing was spent by asking


def test_classes_below_the_policys_floor_do_not_count(site):
    path, plan = site.plan("feddm", "steps = 4\nmin_count = 2", "per-step", 9.0, "batch = 12")
    site.policy(POLICY + 'mechanisms = ["per-step"]\n')
    (own,) = [row for row in json.loads(site.type(path, "--json")[0])["costs"] if row["sigma"] == 9.0]
    steps = Spend(9.0, 12 / 60, 80)  # of the class of 60, the smallest that takes part
    assert own["epsilon"] == epsilon((count_spend(plan.privacy), steps), 1 / 1850)


def test_an_offered_plan_goes_by_its_digest(site):
    _, plan = site.plan("fedaf", "", "release", 10.0, "")
    with Store(site.settings.store) as store:
        store.plans.record(plan, plan.digest(), "joining", 0)
    found = json.loads(site.type(plan.digest()[:12], "--json")[0])
    assert (found["digest"], found["mechanism"]) == (plan.digest(), "release")
    assert "no plan with digest" in site.type("0123456789", code=3).err


def test_what_the_policy_refuses_is_said_beside_the_costs(site):
    path, _ = site.plan(sigma=0.4)
    site.policy(POLICY + "delta = 0.01\n")
    out, err = site.type(path)
    assert "the policy refuses this plan: privacy.min_sigma: sigma 0.4" in err
    assert "the policy refuses this plan: privacy.delta: 0.01 is not below 1 / n" in err
    assert "delta 0.000541" in out
    site.policy(POLICY.partition("[privacy]")[0])
    out, err = site.type(path)
    assert "the policy sets no cap" in out
    assert "privacy.epsilon" in err
    (site.folder / "policy.toml").unlink()
    out, err = site.type(path)
    assert "the policy sets no cap" in out
    assert "there is no policy, so nothing is allowed" in err


def test_a_plan_that_spends_nothing_and_what_is_no_plan(site):
    path, _ = site.plan()
    path.write_text(path.read_text(encoding="utf-8").partition("[privacy]")[0], encoding="utf-8")
    assert "asks for no differential privacy" in site.type(path, code=3).err
    assert "nowhere.toml" in site.type("nowhere.toml", code=3).err
    site.plan()
    for sigma in ("0", "nan", "2e6"):
        assert "out of range" in site.type(path, "--sigma", sigma, code=3).err


def test_the_noise_for_an_epsilon_is_shown_beside_the_plans(site):
    path, _ = site.plan("fedaf", "", "release", more="")
    told = json.loads(site.type(path, "--epsilon", "1.5", "--sigma", "7", "--json").out)
    assert sorted(row["sigma"] for row in told["costs"])[:1] == [2.0]
    (found,) = [row for row in told["costs"] if row["sigma"] not in (2.0, 7.0)]
    assert 1.49 < found["epsilon"] <= 1.5
    said = site.type(path, "--epsilon", "0.001", code=3).err
    assert "--epsilon 0.001: no sigma reaches it" in said


def test_noise_that_a_cohort_shares_shows_what_holds_if_more_collude(site):
    cohort = 'secagg = "required"\n[task]', '[cohort]\nmin_nodes = 3\nnodes = ["a", "b", "c"]\n[privacy]'
    settings = 'parametrisation = "explicit"\ncomponents = 2'
    path, more = site.folder / "plan.toml", 'batch = 185\nmixing_sigma = 4.0\nshares = "distributed"'
    text = PLAN.format(method="fedspm", settings=settings, kind="dp-sgd", sigma=2.0, more=more)
    path.write_text(text.replace("[task]", cohort[0]).replace("[privacy]", cohort[1]), encoding="utf-8")
    told = json.loads(site.type(path, "--json")[0])
    assert told["trust"] == "at most 1 of 3 nodes collude with the coordinator"
    plan, delta = load_plan(path)[0], 1 / 1850
    assert [row["epsilon"] < row["epsilon_local"] for row in told["costs"]] == [True] * 6
    spends = plan_spends(plan, 185, COUNTS)
    shares = plan.privacy.shared_noise(3)
    alone = [Spend(shares.local_sigma(s.sigma), 1.0, s.steps) if s.sigma == 4.0 else s for s in spends]
    (own,) = [row for row in told["costs"] if row["sigma"] == 2.0]
    assert own["epsilon_local"] == pytest.approx(epsilon(alone, delta))
    out = site.type(path).out
    assert "if more collude" in out
    assert "mixing weights: epsilon is so if at most 1 of 3 nodes collude" in out
