"""Sanity cases 5, 6, 7 and 10: who is compared with whom."""

from __future__ import annotations

import json

import numpy as np
import pytest
from audited_people import audited, averages, pictures, planted, result, rows, three

from fedsecure_attacks.embedding import Whitener, pixels
from fedsecure_attacks.files import audit_files
from fedsecure_attacks.images.frame import Frame
from fedsecure_attacks.images.tracing import mean_tracing
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Candidates, Labelled
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.strictjson import dump, files_report
from fedsecure_attacks.verdict import Word


def joined(name: str, *parts: Labelled) -> Labelled:
    return Labelled(name, np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))


def own_means(d: int, n_ref: int, rng: np.random.Generator, *, reused: bool) -> float:
    """The area against a mean of nobody in the pools, when the attacker learns the population's mean from ``n_ref``
    people: from those who are out and compared (``reused``), or from others."""
    x = rng.standard_normal((50 + n_ref, d))
    known = x[50:] if reused else rng.standard_normal((n_ref, d))
    frame = Frame(pixels, {0: known.mean(axis=0)}, Whitener(np.zeros((0, d)), np.zeros(0), 1.0), {0: known})
    released = Labelled("released", rng.standard_normal((1, d)).astype(np.float32) / 8, np.zeros(1, np.int64))
    who = Candidates(x.astype(np.float32), np.zeros(len(x), np.int64))
    scores = mean_tracing(Outsider(released, released, {0: 50}), who, frame)
    return auc(Scores.of(scores, np.arange(len(x)) < 50))


def test_references_who_are_compared_too_find_a_leak_where_there_is_none():
    """Why that is INVALID: the attack would find its own non-members; with others it finds nothing."""
    rng = np.random.default_rng(0)
    assert np.mean([own_means(256, 100, rng, reused=True) for _ in range(20)]) > 0.6
    assert np.mean([own_means(256, 100, rng, reused=False) for _ in range(20)]) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("whose", [0, 1])
def test_references_who_are_candidates_make_it_invalid(whose):
    rng = np.random.default_rng(1)
    parts = three(rows, 40, 120, 100, rng)
    mixed = joined("reference", parts[2], parts[whose].take(np.arange(3)))
    audit = audited((parts[0], parts[1], mixed), averages(parts[0], 2))
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason == f"reference: 3 of its records are among the {('members', 'non-members')[whose]}, too"
    assert audit.results == ()


def test_records_in_both_pools_are_left_out_and_counted_and_many_leave_it_open():
    rng = np.random.default_rng(2)
    members, out, others = three(rows, 100, 400, 120, rng)
    for shared, doubted in ((3, False), (10, True)):
        both = joined("non-members", out, members.take(np.arange(shared)))
        audit = audited((members, both, others), planted(members.x[50:51] * 0, members.y[50:51], rng))
        assert audit.counts["in_both_pools"] == shared
        assert audit.counts["members_compared"] == 100 - shared
        assert any(f"{shared} records are in both pools" in note for note in audit.notes)
        assert audit.verdict.word is Word.INCONCLUSIVE
        assert ("in both pools" in audit.verdict.reason) is doubted


def test_members_who_repeat_are_flagged_and_told_more_easily():
    """A pair counts double in its class's mean: its effect is twice that of others."""
    rng = np.random.default_rng(3)
    members, out, others = three(pictures, 60, 600, 400, rng)
    doubled = joined("members", members, members.take(np.arange(12)))
    frame, found = Frame.of(others, pixels), {}
    for name, part in (("once", members), ("twice", doubled)):
        seen = Outsider(averages(part, 1), others, {0: len(part) // 2, 1: len(part) // 2})
        who = joined("both", members, out)
        scores = mean_tracing(seen, Candidates(who.x, who.y), frame)
        found[name] = auc(Scores(scores[:12], scores[60:]))
    assert found["twice"] > found["once"]
    audit = audited((doubled, out, others), averages(doubled, 1))
    assert audit.counts["members_that_repeat"] == 12
    assert "12 members repeat another member: each counts double in every mean" in audit.notes


def test_a_class_of_which_nothing_was_released_is_skipped_and_its_absence_told():
    rng = np.random.default_rng(4)
    parts = three(rows, 60, 200, 120, rng)
    released = averages(parts[0], 3)
    audit = audited(parts, released.take(released.y == 1))
    assert "classes 0: nothing of them was released; which classes are is disclosed by that" in audit.notes
    assert audit.results


def test_as_many_images_as_people_started_from_people_are_those_people():
    rng = np.random.default_rng(5)
    parts = three(pictures, 30, 300, 120, rng)
    audit = audited(parts, Labelled("released", parts[0].x, parts[0].y))
    assert audit.verdict.word is Word.LEAK
    assert audit.verdict.reason == "30 members were released bit for bit"
    assert result(audit, "nearest-neighbour-pixels").auc == 1.0


def test_eight_people_say_nothing():
    rng = np.random.default_rng(6)
    audit = audited(three(rows, 8, 8, 60, rng), rows("released", 4, rng))
    assert audit.verdict.word is Word.INCONCLUSIVE, audit.verdict
    for found in audit.results:
        if found.rates:
            assert found.joint.high - found.joint.low > 0.4, found
            assert found.joint.low < 0.5 < found.joint.high


@pytest.mark.parametrize("empty", [0, 1])
def test_one_kind_alone_is_invalid_and_not_one_half(empty):
    rng = np.random.default_rng(7)
    parts = list(three(rows, 20, 60, 60, rng))
    parts[empty] = parts[empty].take(np.arange(0))
    audit = audited(tuple(parts), rows("released", 4, rng))
    assert audit.verdict.word is Word.INVALID
    assert audit.verdict.reason.startswith(f"{('members', 'non-members')[empty]}: no record")
    assert json.loads(dump(files_report(audit)))["attacks"] == {}


def test_pools_that_are_the_same_people_leave_nobody():
    rng = np.random.default_rng(8)
    members = rows("members", 20, rng)
    same = Labelled("non-members", members.x, members.y)
    audit = audit_files(members, same, rows("released", 4, rng), rows("reference", 60, rng), audited.__defaults__[0])
    assert audit.verdict.word is Word.INVALID
    assert "no candidates are left" in audit.verdict.reason


def test_no_score_of_a_single_record_is_in_a_report():
    """Sanity case 16, of the JSON: no list is as long as a pool, and no number a record's score."""
    rng = np.random.default_rng(9)
    parts = three(rows, 33, 177, 120, rng)
    audit = audited(parts, averages(parts[0], 2))
    report = files_report(audit)
    lengths: list[int] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            lengths.append(len(value))
            for each in value:
                walk(each)

    walk(report)
    assert not {33, 177, 210} & set(lengths)
