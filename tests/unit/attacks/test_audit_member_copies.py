"""Members who are in a released set as they are, or nearly, are a leak, whatever rates, controls and pools say."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from audited_people import audited, noise, pictures, planted, rows, three

from fedsecure_attacks.files import audit_files
from fedsecure_attacks.images.resemblance import Nearness, released_as_they_are
from fedsecure_attacks.membercopies import copies_among
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.report.findings import findings
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.report.words import first_page
from fedsecure_attacks.strictjson import files_report
from fedsecure_attacks.verdict import Control, Thresholds, Word, decide


def wide(name: str, n: int, rng: np.random.Generator) -> Labelled:
    """Rows of twenty values in units of their own."""
    made = rows(name, n, rng, features=20)
    units = np.geomspace(1e-3, 1e5, 20).astype(np.float32)
    return Labelled(name, made.x * units, made.y)


def with_members(made: Labelled, members: Labelled, count: int, change: np.ndarray | float = 0.0) -> Labelled:
    x, y = made.x.copy(), made.y.copy()
    x[:count], y[:count] = members.x[:count] + change, members.y[:count]
    return Labelled("released", x.astype(np.float32), y)


def joined(name: str, *parts: Labelled) -> Labelled:
    return Labelled(name, np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))


@pytest.mark.parametrize("off", [1e-6, 1e-2])
def test_members_but_for_rounding_or_little_more_are_a_leak(off):
    rng = np.random.default_rng(0)
    parts = three(wide, 120, 400, 100, rng)
    spread = parts[1].x.std(axis=0)
    released = with_members(wide("released", 30, rng), parts[0], 4, off * spread * rng.standard_normal((4, 20)))
    audit = audited(parts, released)
    assert audit.verdict.word is Word.LEAK
    assert audit.verdict.reason == "4 members were released as they are, or nearly"
    report = files_report(audit)
    check(report)
    assert report["counts"]["members_released_bit_for_bit"] == 0
    assert report["counts"]["people_released_or_nearly"] == 4
    assert (report["people"]["exposed"], report["people"]["of"]) == (4, 120)
    assert "nearly as they are" in " ".join(first_page(report).found)


def test_bit_for_bit_and_nearly_are_told_apart():
    rng = np.random.default_rng(1)
    parts = three(wide, 60, 200, 100, rng)
    released = with_members(wide("released", 10, rng), parts[0], 3)
    x = released.x.copy()
    x[2] *= np.float32(1 + 1e-6)
    audit = audited(parts, Labelled("released", x, released.y))
    assert audit.verdict.reason == "3 members were released as they are, or nearly (2 bit for bit)"


@pytest.mark.parametrize("quarters", [1, 3])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_picture_that_was_turned_by_a_quarter_is_that_picture(quarters, mirrored):
    rng = np.random.default_rng(2)
    members = pictures("members", 60, rng)
    x = np.rot90(members.x[:1], quarters, (2, 3))
    made = planted(x[..., ::-1] if mirrored else x, members.y[:1], rng)
    assert copies_among(members, pictures("non-members", 200, rng), made).leaks == (0, 1)
    wide_ones = Labelled("members", rng.random((9, 1, 3, 5)).astype(np.float32), np.zeros(9, np.int64))
    assert released_as_they_are(wide_ones, wide_ones).exact == 9  # no quarter turns of what is not square


@pytest.mark.parametrize("shared", [1, 12])
@pytest.mark.parametrize("others", [60, 400])
def test_members_who_are_in_both_pools_are_members(shared, others):
    rng = np.random.default_rng(3)
    members, out, reference = three(wide, 60, others, 100, rng)
    both = joined("non-members", out, members.take(np.arange(shared)))
    audit = audited((members, both, reference), with_members(wide("released", 30, rng), members, shared))
    assert audit.verdict.word is Word.LEAK, audit.verdict
    assert audit.counts["members_released_bit_for_bit"] == shared
    assert audit.counts["in_both_pools"] == shared


def test_rows_of_few_values_repeat_by_chance_and_are_no_leak():
    def coarse(name: str, n: int, rng: np.random.Generator) -> Labelled:
        return Labelled(name, (rng.random((n, 7)) > 0.5).astype(np.float32), np.arange(n, dtype=np.int64) % 2)

    for seed, (n1, n0) in enumerate([(100, 300), (300, 40), (20, 20), (200, 200)]):
        rng = np.random.default_rng([4, seed])
        found = copies_among(coarse("members", n1, rng), coarse("non-members", n0, rng), coarse("released", 20, rng))
        assert found.nearly > 0
        assert found.outside > 0
        assert found.leaks == (0, 0)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"members_released_bit_for_bit": 3, "nonmembers_released_bit_for_bit": 0}, ["Certain for these: whoever"]),
        ({"members_released_bit_for_bit": 3, "nonmembers_released_bit_for_bit": 4}, []),
        (
            {
                "members_released_bit_for_bit": 30, "nonmembers_released_bit_for_bit": 1,
                "people_released_or_nearly": 32, "nonmembers_released_or_nearly": 2,
            },
            [
                "For no one of them alone: 1 person who is out is in it as well, by chance. But members clearly",
                "For no one of them alone: 2 people who are out are in it as well, by chance. But members clearly",
            ],
        ),
    ],
)  # fmt: skip
def test_a_page_calls_certain_what_is_and_not_what_repeats_by_chance(counts, said):
    rng = np.random.default_rng(8)
    parts = three(wide, 60, 200, 100, rng)
    report = files_report(audited(parts, with_members(wide("released", 10, rng), parts[0], 3)))
    assert report["verdict"] == "LEAK"
    kept = {key: value for key, value in report["counts"].items() if "released_" not in key}
    found = [f for f in findings({**report, "counts": {**kept, **counts}}) if "are in it" in f.words]
    assert len(found) == len(said)
    assert all(f.sure.startswith(words) for f, words in zip(found, said, strict=True))


def skewed(n: int, rng: np.random.Generator) -> np.ndarray:
    return np.exp(1.5 * rng.standard_normal((n, 20)))


def plane(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n, 2)) @ np.random.default_rng(0).standard_normal((2, 20))


def line(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.random((n, 1)) ** np.arange(1, 18)


@pytest.mark.parametrize("make", [skewed, plane, line])
def test_chance_is_never_near_enough_where_people_are_dense_or_spread_in_few_dimensions(make):
    for seed in range(6):
        rng = np.random.default_rng([5, seed])
        members, out, made = (
            Labelled(name, make(n, rng).astype(np.float32), np.zeros(n, np.int64))
            for name, n in (("members", 150), ("non-members", 50), ("released", 60))
        )
        assert copies_among(members, out, made).nearly == 0


def test_a_copy_outranks_a_control_that_failed():
    said = decide((), [Control("blind", False, "no")], Thresholds(), primary="a", facts={}, doubts=(), copies=2)
    assert (said.word, said.reason) == (Word.LEAK, "2 members were released bit for bit")
    rng = np.random.default_rng(6)
    parts = three(pictures, 40, 120, 60, rng)
    unknown = planted(parts[0].x[:5], parts[0].y[:5], rng)
    audit = audited(parts, Labelled("released", unknown.x, unknown.y + 5))
    assert audit.verdict.reason == "5 members were released bit for bit"
    assert not all(control.passed for control in audit.controls)
    check(files_report(audit))


def test_a_copy_is_told_where_nothing_else_can_be_measured():
    rng = np.random.default_rng(7)
    members = pictures("members", 20, rng)
    same = Labelled("non-members", members.x, members.y)
    released = planted(members.x[:3], members.y[:3], rng)
    audit = audit_files(members, same, released, pictures("reference", 60, rng), audited.__defaults__[0])
    assert audit.verdict.reason == "3 members were released bit for bit"
    assert any("nothing but copies could be looked for: no candidates are left" in note for note in audit.notes)
    report = files_report(audit)
    check(report)
    assert report["people"]["exposed"] == 3
    assert first_page(report).headline.startswith("This set gives away")


def test_one_member_and_nobody_else_is_found_and_empty_sets_hold_nobody():
    rng = np.random.default_rng(8)
    one, out = pictures("members", 1, rng), pictures("non-members", 60, rng)
    assert copies_among(one, out, planted(0.5 * one.x + 0.2, one.y, rng)).leaks == (0, 1)
    assert copies_among(one, out, noise(4, rng)).leaks == (0, 0)
    assert released_as_they_are(noise(4, rng).take(np.arange(0)), one, Nearness.of(out)).nearly == 0


def test_values_near_the_largest_float_are_compared_without_a_warning():
    rng = np.random.default_rng(9)

    def huge(name: str, n: int, rng: np.random.Generator) -> Labelled:
        made = rows(name, n, rng, features=20)
        return Labelled(name, np.clip(made.x, -3, 3) * np.float32(1e38), made.y)

    parts = three(huge, 30, 100, 60, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audit = audited(parts, with_members(huge("released", 8, rng), parts[0], 2, 0.0))
    assert audit.verdict.reason == "2 members were released bit for bit"
