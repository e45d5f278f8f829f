"""Sanity cases 3 and 15: sets that tell nothing of the members, and labels that were shuffled."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from audited_people import audited, averages, pictures, result, rows, three
from scipy.stats import binom

from fedsecure_attacks import files
from fedsecure_attacks.embedding import pixels
from fedsecure_attacks.files import Profile
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Labelled, Pools
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.verdict import Word

KINDS = ("noise", "a disjoint population", "a shifted population", "averages of others")


def null_set(kind: str, rng: np.random.Generator) -> Labelled:
    if kind == "noise":
        x = rng.standard_normal((8, 6)).astype(np.float32)
        return Labelled("released", x, np.arange(8, dtype=np.int64) % 2)
    if kind == "averages of others":
        return averages(rows("strangers", 40, rng, features=6), 4)
    return rows("released", 8, rng, features=6, shift=1.5 if kind == "a shifted population" else 0.0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_of_two_hundred_audits_without_a_leak_at_most_one_in_twenty_calls_one(monkeypatch):
    monkeypatch.setattr(files, "gather", lambda *args: {})  # figures for a report's page, made after the verdict
    words, areas = Counter(), {kind: [] for kind in KINDS}
    for seed in range(200):
        rng, kind = np.random.default_rng([7, seed]), KINDS[seed % 4]
        parts = three(lambda name, n, rng: rows(name, n, rng, features=6), 30, 110, 60, rng)
        audit = audited(parts, null_set(kind, rng), Profile(networks=1, with_loss=False, seed=seed))
        words[audit.verdict.word] += 1
        areas[kind] += [r.auc for r in audit.results if r.name == "mean-tracing-pixels"]
    assert binom.sf(words[Word.LEAK] - 1, 200, 0.05) > 0.01, words
    assert words[Word.INVALID] <= 6, words  # controls fail by chance in one of some hundreds
    assert words[Word.NO_LEAK_DETECTED] == 0  # thirty members clear nothing
    for kind, found in areas.items():
        error = np.std(found, ddof=1) / np.sqrt(len(found))
        assert abs(np.mean(found) - 0.5) < 4 * error, kind


@pytest.fixture(scope="module")
def leaking():
    """Class means of 24 members, attacked in pixels, which shows them plainly."""
    rng = np.random.default_rng(3)
    members, out, others = three(pictures, 24, 600, 400, rng)
    candidates, inside = Pools(members, out, others).candidates(rng)
    return members, others, candidates, inside, Frame.of(others, pixels)


def area(leaking, released: Labelled, inside=None) -> float:
    _, others, candidates, truth, frame = leaking
    scores = mean_tracing(Outsider(released, others, {0: 12, 1: 12}), candidates, frame)
    return auc(Scores.of(scores, truth if inside is None else inside))


def test_shuffled_memberships_have_an_area_of_one_half(leaking):
    released, rng = averages(leaking[0], 1), np.random.default_rng(0)
    assert area(leaking, released) > 0.8
    shuffled = [area(leaking, released, rng.permutation(leaking[3])) for _ in range(20)]
    assert np.mean(shuffled) == pytest.approx(0.5, abs=0.05)


def test_shuffled_classes_of_the_set_hide_the_members(leaking):
    """Each class's mean under another's name says nothing of its people."""
    released = averages(leaking[0], 1)
    swapped = Labelled("released", released.x, released.y[::-1].copy())
    assert area(leaking, released) > 0.8
    assert area(leaking, swapped) == pytest.approx(0.5, abs=0.15)


def test_a_set_from_another_population_does_not_upset_the_controls():
    rng = np.random.default_rng(4)
    audit = audited(three(rows, 60, 200, 120, rng), rows("released", 10, rng, shift=2.5))
    assert audit.verdict.word is Word.INCONCLUSIVE, audit.verdict
    assert all(control.passed for control in audit.controls)
    assert result(audit, "mean-tracing").interval.low < 0.5 < result(audit, "mean-tracing").interval.high
