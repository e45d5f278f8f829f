"""Faults planted into the audit itself: each ends as INVALID, with its name. Nothing here is reached by an audit as it
is; what is shown is that it would be noticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from audited_people import audited, averages, rows, three

from fedsecure_attacks import controls, files
from fedsecure_attacks.images import tracing
from fedsecure_attacks.records import Labelled, Pools
from fedsecure_attacks.statistics.scores import Floats
from fedsecure_attacks.verdict import Word


def negated(attack: Callable[..., Floats]) -> Callable[..., Floats]:
    return lambda *args, **kwargs: -attack(*args, **kwargs)


@pytest.fixture(scope="module")
def parts():
    return three(rows, 40, 300, 200, np.random.default_rng(0))


def near(members: Labelled) -> Labelled:
    moved = np.random.default_rng(1).normal(0, 0.05, members.x.shape).astype(np.float32)
    return Labelled("released", members.x + moved, members.y)


def test_as_it_is_the_set_is_a_leak(parts):
    assert audited(parts, near(parts[0])).verdict.word is Word.LEAK


def test_a_negated_score_of_a_set_that_leaks_is_a_wrong_direction(parts, monkeypatch):
    monkeypatch.setattr(files, "raw_neighbour", negated(files.raw_neighbour))
    audit = audited(parts, near(parts[0]))
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason.startswith("direction: members score below non-members under nearest-neighbour")


def test_a_negated_mean_tracing_is_noticed_even_where_nothing_leaks(parts, monkeypatch):
    """The oracle asks the same code that attacks."""
    inner = tracing.contrast
    monkeypatch.setattr(tracing, "contrast", negated(inner))
    audit = audited(parts, averages(rows("strangers", 40, np.random.default_rng(2)), 2))
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason.startswith("control oracle: exact means: area 0.")


def test_a_negated_copy_scan_does_not_find_what_was_planted(parts, monkeypatch):
    monkeypatch.setattr(controls, "copy_scan", negated(controls.copy_scan))
    audit = audited(parts, averages(parts[0], 2))
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason.startswith("control planted: 1 planted member: 0 rank above every non-member")


def test_swapped_pools_are_a_wrong_direction(parts):
    members, out, others = parts
    swapped = Labelled("members", out.x, out.y), Labelled("non-members", members.x, members.y), others
    audit = audited(swapped, near(members))
    assert audit.verdict.word is Word.INVALID
    assert "direction: members score below non-members" in audit.verdict.reason


def test_members_taken_for_references_are_named(parts, monkeypatch):
    members, out, _ = parts
    audit = audited((members, out, Labelled("reference", members.x, members.y)), averages(members, 2))
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason == "reference: 40 of its records are among the members, too"


def test_without_that_check_the_references_themselves_give_it_away(parts, monkeypatch):
    """Were the overlap not looked for: the set made from "other" people is made from members, and shows them."""
    members, out, others = parts
    monkeypatch.setattr(Pools, "__post_init__", lambda self: None)
    known = Labelled(
        "reference", np.concatenate([members.x, others.x[:40]]), np.concatenate([members.y, others.y[:40]])
    )
    audit = audited((members, out, known), averages(rows("strangers", 40, np.random.default_rng(3)), 4))
    assert audit.verdict.word is Word.INVALID, audit.verdict
    assert audit.verdict.reason.startswith("control ")


def test_an_attack_that_returns_nan_is_named(parts, monkeypatch):
    broken = files.raw_neighbour

    def with_nan(*args, **kwargs) -> Floats:
        scores = broken(*args, **kwargs)
        scores[:7] = np.nan
        return scores

    monkeypatch.setattr(files, "raw_neighbour", with_nan)
    audit = audited(parts, averages(parts[0], 2))
    assert audit.verdict.word is Word.INVALID
    assert "are not finite" in audit.verdict.reason
