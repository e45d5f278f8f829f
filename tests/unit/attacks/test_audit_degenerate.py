"""Sanity cases 8 and 9: sets and records in which there is nothing to see, and values that are not numbers. Warnings
are errors in these tests, so a division by nothing would fail them."""

from __future__ import annotations

import numpy as np
import pytest
from audited_people import audited, noise, pictures, planted, result, rows, three

from fedsecure.errors import AuditError
from fedsecure_attacks.embedding import random_networks
from fedsecure_attacks.judging import measure
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.roc import NotMeasurable
from fedsecure_attacks.verdict import Thresholds, Word, decide


def test_scores_that_are_all_equal_measure_nothing():
    inside = np.arange(3000) < 1000
    results = measure({"a": np.zeros(3000)}, inside, Thresholds())
    (one,) = results
    assert one.auc == 0.5
    assert isinstance(one.tpr, NotMeasurable)
    assert one.tail.p == 1.0
    verdict = decide(results, (), Thresholds(), primary="a", facts={}, doubts=(), copies=0)
    assert verdict.word is Word.INCONCLUSIVE
    assert verdict.reason == "a: all scores are equal, so nothing was measured"


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_a_constant_set_is_inconclusive(value):
    rng = np.random.default_rng(1)
    flat = Labelled("released", np.full((4, 1, 8, 8), value, np.float32), np.arange(4) % 2)
    audit = audited(three(pictures, 40, 150, 100, rng), flat)
    assert audit.verdict.word is Word.INCONCLUSIVE, audit.verdict
    for found in audit.results:
        assert found.tail_adjusted > 1e-3, found
        assert found.joint.low <= 0.5 <= found.joint.high, found


def test_constant_people_are_inconclusive():
    """Pictures of one shade each, and features without any variance."""
    rng = np.random.default_rng(2)

    def shades(name: str, n: int, rng: np.random.Generator) -> Labelled:
        x = np.repeat(rng.random(n).astype(np.float32), 64).reshape(n, 1, 8, 8)
        return Labelled(name, x, np.arange(n, dtype=np.int64) % 2)

    audit = audited(three(shades, 40, 150, 100, rng), noise(6, rng))
    assert audit.verdict.word is Word.INCONCLUSIVE, audit.verdict


def test_people_who_are_all_the_same_leave_nobody_to_compare():
    same = [
        Labelled(name, np.full((9, 4), 0.5, np.float32), np.zeros(9, np.int64)) for name in ("members", "non-members")
    ]
    audit = audited((same[0], same[1], rows("reference", 30, np.random.default_rng(3), features=4)), same[0])
    assert audit.verdict.word is Word.INVALID
    assert "no candidates are left" in audit.verdict.reason


def test_columns_without_variance_are_no_obstacle():
    rng = np.random.default_rng(4)

    def flat(name: str, n: int, rng: np.random.Generator) -> Labelled:
        made = rows(name, n, rng)
        x = made.x.copy()
        x[:, 2:] = 7.0
        return Labelled(name, x, made.y)

    parts = three(flat, 60, 200, 120, rng)
    audit = audited(parts, planted(parts[0].x[:5], parts[0].y[:5], rng, n=10))
    assert audit.verdict.word is Word.LEAK


def test_references_of_one_record_a_class_do():
    rng = np.random.default_rng(5)
    parts = three(rows, 40, 160, 120, rng)
    audit = audited((parts[0], parts[1], rows("reference", 2, rng)), rows("released", 4, rng))
    assert audit.verdict.word in (Word.INCONCLUSIVE, Word.INVALID)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("whose", ["released", "members"])
def test_values_that_are_no_numbers_are_named_and_counted(bad, whose):
    x = np.zeros((4, 3), np.float32)
    x[1, :2] = bad
    with pytest.raises(AuditError, match=f"^{whose}: array x holds 2 values that are not finite$"):
        Labelled(whose, x, np.zeros(4, np.int64))


def test_a_score_that_is_no_number_is_never_the_highest():
    scores = np.zeros(300)
    scores[:3] = np.nan
    with pytest.raises(AuditError, match="^scores of members: 3 of 100 are not finite$"):
        measure({"a": scores}, np.arange(300) < 100, Thresholds())


def test_values_near_the_largest_float_are_no_crash():
    rng = np.random.default_rng(6)

    def huge(name: str, n: int, rng: np.random.Generator) -> Labelled:
        made = rows(name, n, rng)
        return Labelled(name, made.x * np.float32(1e37), made.y)

    parts = three(huge, 30, 100, 60, rng)
    audit = audited(parts, huge("released", 6, rng))
    assert audit.verdict.word is Word.INCONCLUSIVE, audit.verdict  # columns are compared on one scale
    with pytest.raises(AuditError, match="^4 of 4 records have values too large for the networks"):
        random_networks((4,), 2, 0, 1)(np.full((4, 4), 3e38, np.float32))


def test_a_column_in_large_units_does_not_drown_the_others():
    """Copies with noise: found among columns of one scale, and just as well when one is in millions."""
    rng = np.random.default_rng(7)
    members, out, others = three(rows, 50, 600, 200, rng)
    near = members.x[:20] + rng.normal(0, 0.05, (20, 12)).astype(np.float32)
    for scale in (1.0, 1e6):
        units = np.where(np.arange(12) == 3, np.float32(scale), np.float32(1))
        parts = [Labelled(p.name, p.x * units, p.y) for p in (members, out, others)]
        audit = audited(tuple(parts), Labelled("released", near * units, members.y[:20]))
        assert result(audit, "copy-scan").tail.count >= 15, scale
        assert result(audit, "nearest-neighbour-pixels").tail.count >= 15, scale
