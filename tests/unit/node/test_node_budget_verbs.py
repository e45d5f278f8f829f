"""``node budget`` and ``node dp-plan`` with options that mean nothing, or too much."""

from __future__ import annotations

import json

import pytest

from fedsecure.cli import run


@pytest.mark.parametrize("before", [("--dir", "."), ("--json",), ("--plot", "epsilon.svg")])
def test_an_option_before_the_verb_is_refused_and_not_dropped(before, site, capsys):
    """``budget --dir A restore`` would have restored the ledger of the folder that one is in."""
    assert run(["node", "budget", *before, "restore", "--dir", str(site)]) == 2
    assert f"{before[0]} stands before 'restore', which takes its options behind it" in capsys.readouterr().err
    assert run(["node", "budget", "restore", "--dir", str(site), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"restored": []}


@pytest.mark.parametrize("told", ["nan", "inf", "-1", "1e308"])
def test_an_epsilon_that_no_policy_could_allow_is_refused(told, site, capsys):
    assert run(["node", "dp-plan", "plan.toml", "--epsilon", told, "--dir", str(site)]) == 2
    assert "'--epsilon'" in capsys.readouterr().err
