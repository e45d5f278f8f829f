"""Files that do not fit together: other scales, labels that were exchanged, classes with too few people, nobody to
learn from. Each is said, and none is cleared; honest sets raise none of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from audited_people import QUICK, audited, averages, noise, pictures, rows, three

from fedsecure.cli import run
from fedsecure.errors import AuditError
from fedsecure_attacks.doubts import about_small_classes
from fedsecure_attacks.embedding import pixels, values_of
from fedsecure_attacks.files import Profile, audit_files
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.labelcheck import about_labels
from fedsecure_attacks.loading import load_labelled
from fedsecure_attacks.onescale import require_one_scale
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.report.words import first_page
from fedsecure_attacks.strictjson import files_report
from fedsecure_attacks.verdict import Thresholds, Word


def table(x: np.ndarray, y: np.ndarray, name: str = "released") -> Labelled:
    return Labelled(name, x.astype(np.float32), y.astype(np.int64))


def patients(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ages, pressures, rare findings, skewed values; two classes."""
    y = rng.integers(0, 2, n)
    plain = rng.normal([60, 120, 4.5, 25], [10, 20, 1, 5], (n, 4)) + 3 * y[:, None]
    found = rng.random((n, 4)) < np.array([0.002, 0.02, 0.2, 0.5])
    return np.concatenate([plain, found, np.exp(rng.normal(0, 1.5, (n, 4)))], axis=1), y


def test_tables_on_another_scale_are_invalid():
    rng = np.random.default_rng(0)
    x, y = patients(800, rng)
    others, made = table(x[300:], y[300:], "non-members"), x[:100]
    mean, spread = x.mean(axis=0), x.std(axis=0)
    for wrong in ((made - mean) / spread, made / 255, made * 255, made + 5 * spread):
        with pytest.raises(AuditError, match="^released and members are not on one scale: "):
            require_one_scale(table(wrong, y[:100]), others)
        audit = audited((table(x[:100], y[:100], "members"), others, None), table(wrong, y[:100]))
        assert audit.verdict.word is Word.INVALID
        assert audit.verdict.reason.endswith("give both on the same")
    for first, second in ((x, (x - mean) / spread), (255 * rng.random((800, 9)), rng.random((800, 9)))):
        for one, other in ((first, second), (second, first)):
            with pytest.raises(AuditError, match="not on one scale"):
                require_one_scale(table(one[:60], y[:60]), table(other[300:], y[300:], "non-members"))


def test_honest_tables_are_on_one_scale():
    for seed in range(20):
        rng = np.random.default_rng([1, seed])
        x, y = patients(600, rng)
        others = table(x[:400], y[:400], "non-members")
        mine = table(x[400:], y[400:])
        one_class = mine.take(mine.y == 1)
        made = [
            mine, mine.take(np.arange(1)), one_class, one_class.take(np.arange(3)), averages(mine, 1),
            averages(mine, 10, 5), table(x.mean(axis=0) + x.std(axis=0) * rng.standard_normal((8, 12)), np.zeros(8)),
        ]  # fmt: skip
        for released in made:
            require_one_scale(released, others)
    rng = np.random.default_rng(2)
    require_one_scale(noise(5, rng), pictures("non-members", 30, rng))
    require_one_scale(table(np.ones((3, 2)), np.zeros(3)), table(np.ones((9, 2)), np.zeros(9)))


def test_a_table_of_bytes_is_not_divided_and_pictures_are(tmp_path):
    x = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    np.savez(tmp_path / "t.npz", x=x, y=np.zeros(3, np.int64))
    assert (load_labelled(tmp_path / "t.npz", "released").x == x).all()
    np.savez(tmp_path / "p.npz", x=x.reshape(3, 2, 2), y=np.zeros(3, np.int64))
    assert load_labelled(tmp_path / "p.npz", "released").x.max() == np.float32(220 / 255)


def test_records_that_float32_makes_equal_are_named(tmp_path):
    x = 1e9 + np.random.default_rng(3).random((40, 3))
    np.savez(tmp_path / "m.npz", x=x, y=np.zeros(40, np.int64))
    named = [part for option in ("members", "nonmembers", "released") for part in (f"--{option}", tmp_path / "m.npz")]
    assert run(["audit", "files", *map(str, named)]) == 2
    twice = np.concatenate([x[:20], x[:20]]) - 1e9
    np.savez(tmp_path / "m.npz", x=twice, y=np.zeros(40, np.int64))
    assert len(load_labelled(tmp_path / "m.npz", "members")) == 40  # repeated in the file itself


@pytest.mark.parametrize("exchanged", [True, False])
def test_labels_that_were_exchanged_leave_it_open(exchanged):
    rng = np.random.default_rng(4)
    parts = three(rows, 600, 1200, 300, rng)
    made = averages(rows("strangers", 400, rng), 20)
    loose = Profile(networks=1, with_loss=False, thresholds=Thresholds(tpr=0.2, auc=0.7))
    audit = audited(parts, Labelled("released", made.x, 1 - made.y if exchanged else made.y), loose)
    if not exchanged:
        assert audit.verdict.word is Word.NO_LEAK_DETECTED, audit.verdict
        return
    assert audit.verdict.word is Word.INCONCLUSIVE
    assert audit.verdict.reason.startswith("the labels of the released set do not fit the references: 0 of 40")
    assert audit.verdict.reason in audit.notes


def test_pictures_whose_labels_were_exchanged_are_known():
    rng = np.random.default_rng(10)
    frame = Frame.of(pictures("reference", 400, rng), pixels)
    made = averages(pictures("strangers", 400, rng), 20)
    assert about_labels(made, [frame], rng) == []
    assert about_labels(Labelled("released", made.x, 1 - made.y), [frame], rng)


def classes(n: int, count: int, rng: np.random.Generator, apart: float = 6.0) -> Labelled:
    y = np.arange(n) % count
    centres = np.random.default_rng(0).standard_normal((count, 20)) * apart / np.sqrt(20)
    return table(rng.standard_normal((n, 20)) + centres[y], y, "reference")


def test_classes_that_were_renamed_are_told_where_shuffling_says_little():
    rng = np.random.default_rng(5)
    frame = Frame.of(classes(400, 10, rng), pixels)
    made = classes(30, 10, rng)
    assert about_labels(made, [frame], rng) == []
    (said,) = about_labels(table(made.x, (made.y + 1) % 10), [frame], rng)
    assert said.endswith("0 of 30 are of the nearest class, and 30 once classes are renamed")


def test_labels_of_honest_sets_and_of_hard_data_raise_no_doubt():
    for seed in range(30):
        rng = np.random.default_rng([6, seed])
        people = classes(300, 3, rng)
        frame = Frame.of(people, values_of(people.x))
        shuffled = classes(300, 3, rng, apart=0.0)
        hard = Frame.of(shuffled, pixels)
        wrong = table(people.x[:60], 2 - people.y[:60])
        assert about_labels(wrong, [hard], rng) == []
        made = (averages(people, 1), averages(people, 10), people.take(people.y == 1), people.take(np.arange(1)))
        assert [about_labels(each, [frame], rng) for each in made] == [[]] * 4


def test_a_class_with_too_few_members_is_never_cleared():
    rng = np.random.default_rng(7)
    parts = three(rows, 600, 1200, 300, rng)
    made = averages(rows("strangers", 400, rng), 20)
    strict = Profile(networks=1, with_loss=False, thresholds=Thresholds(tpr=0.2, auc=0.7, n_min=301))
    audit = audited(parts, made, strict)
    assert audit.verdict.word is Word.INCONCLUSIVE
    said = "classes 0, 1 have 300 members each (at least 301 for anything of a class to be released)"
    assert audit.verdict.reason == said
    assert said in audit.notes
    report = files_report(audit)
    assert [entry["below_minimum"] for entry in report["classes"]] == [True, True]
    assert said in " ".join(first_page(report).found)
    drawn = audit_files(*parts[:2], made, parts[2], strict, sizes={0: 301, 1: 900})
    assert drawn.verdict.word is Word.NO_LEAK_DETECTED, drawn.verdict
    one = about_small_classes({0: 1}, made.take(made.y == 0), 10)
    assert one == ["class 0 has 1 member (at least 10 for anything of a class to be released)"]


def test_non_members_who_are_all_one_record_and_an_empty_reference_are_named():
    rng = np.random.default_rng(8)
    members, released = rows("members", 20, rng), rows("released", 4, rng)
    same = Labelled("non-members", np.repeat(rows("n", 1, rng).x, 30, axis=0), np.zeros(30, np.int64))
    audit = audit_files(members, same, released, None, QUICK)
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason == "non-members: too few that differ to learn the population from"
    empty = rows("reference", 0, rng)
    audit = audit_files(members, rows("non-members", 60, rng), released, empty, QUICK)
    assert audit.verdict.reason == "reference: no record, so there is nothing to compare"
    json.dumps(files_report(audit), allow_nan=False)


def test_records_of_another_shape_are_no_twins():
    rng = np.random.default_rng(9)
    members = pictures("members", 20, rng)
    other = Labelled("non-members", members.x.reshape(20, 1, 4, 16), members.y)
    assert not set(members.fingerprints()) & set(other.fingerprints())
    audit = audit_files(members, other, noise(4, rng), None, QUICK)
    assert audit.verdict.reason == "records of different shapes: non-members of [1, 4, 16], members of [1, 8, 8]"
