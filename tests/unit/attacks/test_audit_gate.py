"""The audit of one release: copies are found among any number of people, nothing is cleared without people held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedsecure.errors import AuditError
from fedsecure_attacks.gate import Labelled, ReleaseAudit, ReleaseProfile, Thresholds, Word, audit_release
from fedsecure_attacks.images.resemblance import Copies, Nearness, released_as_they_are
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.report.words import first_page

LOOSE = Thresholds(tpr=0.1, auc=0.65)


def people(count: int, seed: int, name: str = "members") -> Labelled:
    rng = np.random.default_rng(seed)
    y = np.arange(count, dtype=np.int64) % 3
    x = (0.5 * rng.random((count, 1, 4, 4)) + 0.2 * y[:, None, None, None]).astype(np.float32)
    return Labelled(name, x, y)


def noise(seed: int = 3) -> Labelled:
    y = np.repeat(np.arange(3, dtype=np.int64), 4)
    return Labelled("released", np.random.default_rng(seed).random((12, 1, 4, 4)).astype(np.float32), y)


def with_members(released: Labelled, members: Labelled, count: int, change: float = 0.0) -> Labelled:
    x = released.x.copy()
    x[:count] = members.x[:count] + np.float32(change)
    return replace(released, x=x)


def audited(released: Labelled, members: Labelled, others: Labelled, kind: str = "quick", **how: float) -> ReleaseAudit:
    profile = ReleaseProfile.of(kind, LOOSE, seed=1, min_power=how.get("min_power", 0.8))  # type: ignore[arg-type]
    return audit_release(released, members, others, profile)


NOBODY = people(0, 0, "non-members")
MEMBERS, OTHERS = people(1200, 1), people(2100, 2, "non-members")


@pytest.fixture(scope="module")
def clean() -> ReleaseAudit:
    return audited(noise(), MEMBERS, OTHERS)


def test_a_release_that_knows_nobody_is_cleared_with_the_power_it_had(clean: ReleaseAudit) -> None:
    assert clean.verdict.word is Word.NO_LEAK_DETECTED, clean.verdict.reason
    assert any("twice the accepted rate" in note for note in clean.audit.notes)
    report = clean.report()
    check(report)
    assert (report["mode"], report["threat_model"], report["plan"]["kind"]) == ("release", "T1", "quick")
    assert {"mean-tracing", "copy-scan", "mean-tracing-quantile", "nearest-neighbour"} <= set(report["attacks"])
    assert {name for name, control in report["controls"].items() if control["passed"]} >= {"planted", "blind", "oracle"}


def test_the_same_bytes_and_people_give_the_same_report(clean: ReleaseAudit) -> None:
    assert audited(noise(), MEMBERS, OTHERS).report_bytes() == clean.report_bytes()


def test_too_little_power_is_inconclusive() -> None:
    made = audited(noise(), MEMBERS, OTHERS, min_power=0.99999999)
    assert made.verdict.word in (Word.INCONCLUSIVE, Word.NO_LEAK_DETECTED)
    few = audited(noise(), people(1200, 1), people(60, 2, "non-members"))
    assert few.verdict.word is Word.INCONCLUSIVE
    assert few.compared


@pytest.mark.parametrize("change", [0.0, 1 / 255])
@pytest.mark.parametrize("others", [NOBODY, people(60, 2, "non-members")], ids=["nobody held out", "some held out"])
def test_members_in_it_are_a_leak_whoever_is_held_out(others: Labelled, change: float) -> None:
    members = people(90, 1)
    made = audited(with_members(noise(), members, 8, change), members, others)
    assert made.verdict.word is Word.LEAK
    assert made.verdict.reason.startswith("8 records of this node are in it")
    counts = made.report()["counts"]
    assert counts["people_released_or_nearly"] == 8
    assert counts["members_released_bit_for_bit"] == (0 if change else 8)
    check(made.report())
    people_told = made.report()["people"]
    assert (people_told["exposed"], people_told["of"], people_told["by_chance"]) == (8, 90, 0.0)
    page = first_page(made.report())
    assert page.people[0].startswith(
        "8 of 90 members were picked out (released as they are, or nearly). By chance alone"
    )
    assert page.found[0].startswith(
        "The records of 8 people are in it nearly" if change else "The records of 8 members"
    )


def test_whoever_is_in_it_while_held_out_is_counted() -> None:
    members, out = people(90, 1), people(60, 2, "non-members")
    x = with_members(noise(), members, 2).x
    x[2] = out.x[0]
    told = audited(replace(noise(), x=x), members, out).report()["people"]
    assert (told["exposed"], told["of"]) == (3, 150)
    assert told["how"] == "released as they are, or nearly; 1 of them should have been held out"


def test_one_member_mirrored_or_turned_is_one_too_many() -> None:
    members = people(90, 1)
    for look in (members.x[5][..., ::-1], members.x[5][..., ::-1, ::-1], np.roll(members.x[5], 1, axis=2)):
        x = noise().x.copy()
        x[0] = look
        made = audited(replace(noise(), x=x), members, NOBODY)
        assert made.verdict.reason == "1 record of this node is in it as it is, or nearly"


def test_without_people_held_out_nothing_is_cleared() -> None:
    made = audited(noise(), people(90, 1), NOBODY)
    assert (made.verdict.word, made.compared, made.kind) == (Word.INCONCLUSIVE, False, "copies")
    assert "nobody is held out" in made.verdict.reason
    assert made.report()["controls"]["planted"]["passed"]
    few = audited(noise(), people(90, 1), people(19, 2, "non-members"))
    assert "only 19 people" in few.verdict.reason


def test_people_of_other_classes_are_nobody_to_compare_with() -> None:
    released, members = noise(), people(90, 1)
    one_class = released.take(released.y == 0)
    others = people(90, 2, "non-members")
    made = audited(one_class, members, others.take(others.y != 0))
    assert not made.compared
    assert audited(one_class, members, others).audit.counts["members_compared"] == 30


def test_a_scan_that_misses_its_own_planted_member_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedsecure_attacks.gate import release as module

    monkeypatch.setattr(module, "released_as_they_are", lambda *given: Copies(0, 0))
    made = audited(noise(), people(90, 1), NOBODY)
    assert made.verdict.word is Word.INVALID
    assert "planted" in made.verdict.reason


def test_values_that_are_not_finite_are_named() -> None:
    with pytest.raises(AuditError, match="released: array x holds 1 values that are not finite"):
        replace(noise(), x=np.where(np.arange(192).reshape(12, 1, 4, 4) == 7, np.nan, noise().x).astype(np.float32))


def test_chance_is_never_near_enough_to_be_a_copy() -> None:
    members = people(300, 5)
    near = Nearness.of(members)
    assert min(near.plain, near.shape) > 0
    found = [released_as_they_are(people(30, 100 + seed), members, near) for seed in range(20)]
    assert found == [Copies(0, 0)] * 20
    rows = Labelled("members", np.random.default_rng(0).random((50, 3)).astype(np.float32), np.zeros(50, np.int64))
    assert Nearness.of(rows) == Nearness(), "in few dimensions any two may be near"


def test_people_at_another_brightness_and_contrast_are_people_and_blank_images_are_nobody() -> None:
    members = people(90, 1)
    x = noise().x.copy()
    x[:2] = 0.25 + 0.5 * members.x[:2]  # as one gets who undoes another standardisation than was done
    made = audited(replace(noise(), x=x), members, NOBODY)
    assert made.verdict.word is Word.LEAK
    counts = made.report()["counts"]
    assert (counts["people_released_or_nearly"], counts["members_released_bit_for_bit"]) == (2, 0)
    blank = replace(members, x=np.concatenate([members.x[:80], np.full((10, 1, 4, 4), 0.5, np.float32)]))
    assert audited(replace(noise(), x=np.full((12, 1, 4, 4), 0.9, np.float32)), blank, NOBODY).verdict.word is (
        Word.INCONCLUSIVE
    )
