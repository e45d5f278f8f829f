"""The audit of four files, on small tables and images: each sanity case ends in its named verdict."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.errors import AuditError
from fedsecure_attacks.files import FilesAudit, Profile, audit_files
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.statistics.roc import NotMeasurable
from fedsecure_attacks.verdict import Word

QUICK = Profile(networks=2, with_loss=False)
FEATURES = 12


def people(name: str, n: int, rng: np.random.Generator, *, classes: int = 2, shift: float = 0.0) -> Labelled:
    """``n`` rows of ``FEATURES`` Gaussian values; classes differ in their mean."""
    y = np.arange(n) % classes
    x = rng.standard_normal((n, FEATURES)) + y[:, None] + shift
    return Labelled(name, x.astype(np.float32), y.astype(np.int64))


def pictures(name: str, n: int, rng: np.random.Generator) -> Labelled:
    """``n`` images (1, 8, 8) in [0, 1] with smooth blobs."""
    y = np.arange(n) % 2
    grid = np.linspace(-1, 1, 8)
    centres = rng.uniform(-0.6, 0.6, (n, 2))
    blobs = np.exp(
        -((grid[None, :, None] - centres[:, :1, None]) ** 2 + (grid[None, None] - centres[:, 1:, None]) ** 2)
    )
    x = np.clip(0.6 * blobs + 0.3 * rng.random((n, 8, 8)) + 0.05 * y[:, None, None], 0, 1)
    return Labelled(name, x[:, None].astype(np.float32), y.astype(np.int64))


def averaged(of: Labelled, per_class: int) -> Labelled:
    x, y = [], []
    for c in np.unique(of.y):
        rows = of.x[of.y == c]
        for group in np.array_split(np.arange(len(rows)), per_class):
            x.append(rows[group].mean(axis=0))
            y.append(c)
    return Labelled("released", np.stack(x).astype(np.float32), np.array(y, np.int64))


def result(audit: FilesAudit, name: str):
    return next(r for r in audit.results if r.name == name)


def test_planted_members_are_a_leak_though_the_area_is_one_half():
    rng = np.random.default_rng(0)
    members, out, others = (people(n, k, rng) for n, k in (("members", 300), ("non-members", 1200), ("reference", 300)))
    noise = people("released", 10, rng)
    x, y = noise.x.copy(), noise.y.copy()
    x[:5], y[:5] = members.x[:5], members.y[:5]
    audit = audit_files(members, out, Labelled("released", x, y), others, QUICK)
    assert audit.verdict.word is Word.LEAK
    assert audit.verdict.reason == "5 members were released bit for bit"
    scan = result(audit, "copy-scan")
    assert scan.tail.count >= 5
    assert scan.tail_adjusted < 1e-2
    assert 0.4 < scan.auc < 0.6


@pytest.mark.parametrize("how", ["mirrored", "shifted", "brighter", "rounded"])
def test_planted_members_are_found_when_they_were_changed_a_little(how):
    rng = np.random.default_rng(1)
    members, out, others = (pictures(n, k, rng) for n, k in (("members", 60), ("non-members", 700), ("reference", 200)))
    taken = members.x[:8]
    changed = {
        "mirrored": lambda: taken[..., ::-1],
        "shifted": lambda: np.roll(taken, 1, axis=3),
        "brighter": lambda: np.clip(taken + 1 / 255, 0, 1),
        "rounded": lambda: np.round(taken * 16) / 16,
    }[how]()
    released = Labelled("released", np.ascontiguousarray(changed, np.float32), members.y[:8])
    audit = audit_files(members, out, released, others, QUICK)
    assert audit.verdict.word is Word.LEAK, audit.verdict
    assert result(audit, "copy-scan").tail.count >= 8


def test_the_mean_of_a_few_members_is_a_leak_and_that_of_others_is_none():
    rng = np.random.default_rng(2)
    members, out, others = (people(n, k, rng) for n, k in (("members", 30), ("non-members", 1500), ("reference", 600)))
    audit = audit_files(members, out, averaged(members, 2), others, QUICK)
    assert audit.verdict.word is Word.LEAK
    assert result(audit, "mean-tracing-pixels").auc > 0.75
    audit = audit_files(members, out, averaged(people("strangers", 30, rng), 2), others, QUICK)
    assert audit.verdict.word is Word.INCONCLUSIVE  # thirty members are too few to say that there is none


def test_with_enough_people_no_leak_is_said_with_its_power():
    rng = np.random.default_rng(3)
    members, out, others = (
        people(n, k, rng) for n, k in (("members", 3000), ("non-members", 3000), ("reference", 800))
    )
    audit = audit_files(members, out, averaged(people("strangers", 200, rng), 3), others, QUICK)
    assert audit.verdict.word is Word.NO_LEAK_DETECTED, audit.verdict
    assert audit.verdict.reason.startswith("power: a rate above 0.0")
    assert all(control.passed for control in audit.controls)


def test_false_alarms_are_rare():
    """Noise, and sets made from others: 36 audits, of which at most a few may call it a leak."""
    alarms, rng = 0, np.random.default_rng(4)
    for seed in range(36):
        members, out, others = (
            people(n, k, rng) for n, k in (("members", 60), ("non-members", 200), ("reference", 120))
        )
        released = people("released", 8, rng) if seed % 2 else averaged(people("strangers", 60, rng), 4)
        audit = audit_files(members, out, released, others, Profile(networks=1, with_loss=False, seed=seed))
        alarms += audit.verdict.word is Word.LEAK
    assert alarms <= 4  # binomial, 5 %: more than four in thirty-six happen once in thirty


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named_and_counted(bad):
    x = np.zeros((4, 3), np.float32)
    x[1, :2] = bad
    with pytest.raises(AuditError, match="^released: array x holds 2 values that are not finite$"):
        Labelled("released", x, np.zeros(4, np.int64))


def test_references_among_the_candidates_make_it_invalid():
    rng = np.random.default_rng(5)
    members, out = people("members", 50, rng), people("non-members", 100, rng)
    others = Labelled("reference", np.concatenate([out.x[:20], members.x[:0]]), out.y[:20])
    audit = audit_files(members, out, averaged(members, 2), others, QUICK)
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason == "reference: 20 of its records are among the non-members, too"


def test_twins_are_taken_out_and_many_of_them_leave_it_open():
    rng = np.random.default_rng(6)
    members, out, others = (people(n, k, rng) for n, k in (("members", 60), ("non-members", 120), ("reference", 120)))
    twins = Labelled("non-members", np.concatenate([out.x, members.x[:10]]), np.concatenate([out.y, members.y[:10]]))
    audit = audit_files(members, twins, people("released", 6, rng), others, QUICK)
    assert audit.counts["in_both_pools"] == 10
    assert audit.counts["members_compared"] == 50
    assert audit.verdict.word is Word.INCONCLUSIVE
    assert "10 records are in both pools" in audit.verdict.reason


def test_a_constant_set_measures_nothing():
    rng = np.random.default_rng(7)
    same = [
        Labelled(
            n, np.full((k, 5), 0.5, np.float32) + np.arange(k, dtype=np.float32)[:, None] * 0, np.zeros(k, np.int64)
        )
        for n, k in (("members", 1), ("non-members", 1))
    ]
    assert audit_files(*same, people("released", 4, rng), None, QUICK).verdict.word is Word.INVALID
    members, out, others = (pictures(n, k, rng) for n, k in (("members", 40), ("non-members", 80), ("reference", 60)))
    flat = Labelled("released", np.full((2, 1, 8, 8), 0.5, np.float32), np.array([0, 1]))
    audit = audit_files(members, out, flat, others, QUICK)
    assert audit.verdict.word in (Word.INCONCLUSIVE, Word.INVALID)
    assert isinstance(result(audit, "mean-tracing").tpr, NotMeasurable)


@pytest.mark.parametrize("empty", ["members", "non-members", "released"])
def test_one_kind_alone_is_invalid_and_not_one_half(empty):
    rng = np.random.default_rng(8)
    parts = {n: people(n, 0 if n == empty else 20, rng) for n in ("members", "non-members", "released")}
    audit = audit_files(parts["members"], parts["non-members"], parts["released"], None, QUICK)
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason.startswith(f"{empty}: no record")
    assert audit.results == ()


def test_people_of_another_population_make_it_invalid():
    """Members that differ from non-members by more than membership: any attack would "find" them."""
    rng = np.random.default_rng(9)
    members, out = people("members", 200, rng, shift=0.8), people("non-members", 400, rng)
    audit = audit_files(members, out, averaged(members, 2), people("reference", 300, rng), QUICK)
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason.startswith("control blind: ")


def test_the_plan_is_fixed_beforehand_and_hashed():
    assert Profile().digest() == Profile().digest()
    assert Profile().digest() != Profile(seed=1).digest()
    json.dumps(Profile().to_json(), allow_nan=False)
