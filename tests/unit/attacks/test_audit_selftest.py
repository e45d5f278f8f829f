"""``fedsecure audit selftest``: it passes on this installation, and fails on one whose attacks are broken."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure_attacks.selftest import run as selftests
from fedsecure_attacks.selftest.cases import Answer, by_area, by_silence, by_tail
from fedsecure_attacks.selftest.run import SelfTest, selftest
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.verdict import Word


@pytest.mark.slow
def test_this_installation_passes_and_says_so_as_strict_json(capsys):
    assert run(["audit", "selftest", "--json"]) == 0
    out = capsys.readouterr().out
    report = json.loads(out, parse_constant=pytest.fail)
    assert report["mode"] == "selftest"
    assert report["verdict"] == "NO-LEAK-DETECTED"
    assert report["counts"] == {"answers": len(report["controls"]), "wrong": 0}
    assert len(report["controls"]) >= 30
    assert report["reason"].endswith("nothing of yours was audited")
    assert "safe" not in out


def test_attacks_that_are_broken_are_named(monkeypatch):
    """The copy scan reads its scores the wrong way round, and the neighbour attack gives everybody the same."""
    scan = selftests.copy_scan
    monkeypatch.setattr(selftests, "copy_scan", lambda *args: -scan(*args))
    monkeypatch.setattr(selftests, "raw_neighbour", lambda seen, who, embed: np.zeros(len(who)))
    monkeypatch.setattr(selftests, "loss_attack", lambda seen, who, seed: np.zeros(len(who)))
    answers = tuple(selftests._planted(0))
    wrong = {answer.name for answer in answers if not answer.passed}
    assert wrong == {
        "copies of 8 people: copy-scan",
        "the same mirrored, in 33 shades: copy-scan",
        "noisy records: nearest-neighbour",
        "noisy records: loss",
    }
    result = SelfTest(0, answers)
    assert result.word is Word.INVALID
    assert result.reason.startswith("4 of 7 answers are wrong: copies of 8 people: copy-scan;")
    assert result.report()["exit_code"] == 12


def test_the_command_fails_with_twelve_and_says_what_must_have_been(monkeypatch, capsys):
    broken = SelfTest(0, (Answer("one", "found", "nothing", passed=False), Answer("two", "a", "a", passed=True)))
    monkeypatch.setattr(selftests, "selftest", lambda seed, progress: broken)
    assert run(["audit", "selftest"]) == 12
    out = capsys.readouterr().out
    assert "FAIL  one  nothing" in out
    assert "must be: found" in out
    assert out.splitlines()[-1] == "FAILED: 1 of 2 answers are wrong: one"


def test_answers_can_be_wrong():
    rng = np.random.default_rng(0)
    same = Scores(rng.standard_normal(50), rng.standard_normal(500))
    apart = Scores(rng.standard_normal(50) + 6, rng.standard_normal(500))
    assert not by_tail("", same, 8).passed
    assert not by_area("", same).passed
    assert by_silence("", same).passed
    assert by_tail("", apart, 8).passed
    assert by_area("", apart).passed
    assert not by_silence("", apart).passed


def test_it_is_the_same_twice(monkeypatch):
    for part in ("_planted", "_condensed", "_silent", "_verdicts"):
        monkeypatch.setattr(selftests, part, lambda seed: iter(()))
    assert selftest(3) == selftest(3)
    assert selftest(3).answers != selftest(4).answers
