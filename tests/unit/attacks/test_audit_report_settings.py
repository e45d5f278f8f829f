"""What the first page says of a sweep: which settings leak, most and least, and what follows from that."""

from __future__ import annotations

import pytest
from report_samples import sample

from fedsecure_attacks.report.settings import settings_found, settings_to_do
from fedsecure_attacks.report.words import first_page
from fedsecure_attacks.verdict import Word


def cell(init, sigma, ipc, verdict, auc, rate=None):
    return {
        "init": init, "sigma": sigma, "ipc": ipc, "curve": "as deployed", "verdict": verdict,
        "attacks": {"combined": {"auc": auc, "tpr_at_fpr_0.01": rate}},
    }  # fmt: skip


def report(*cells):
    return {"primary": "combined", "plan": {}, "sweep": list(cells)}


def test_leaking_settings_are_counted_by_start_and_noise():
    found = settings_found(report(
        cell("noise", 0.0, 1, "LEAK", 0.6, 0.1), cell("noise", 0.0, 5, "INCONCLUSIVE", 0.7, 0.02),
        cell("noise", 1.0, 5, "NO-LEAK-DETECTED", 0.5, 0.008), cell("real", 0.0, 5, "LEAK", 0.65, 0.5),
    ))  # fmt: skip
    assert found[0] == (
        "Settings that give away more than was accepted beforehand (2 of 100 members picked out, 1 of 100 others), by "
        "what images start from: from pure noise: 1 of 2; from pure noise with noise added for privacy, σ = 1: 0 of 1; "
        "from records themselves: 1 of 1. Of the other 2, 1 showed no leak and 1 is left open, which is no clearance."
    )
    assert found[1].startswith("Most under 5 images a class from records themselves: 50 of 100 members")
    assert found[1].endswith(
        "Least under 5 images a class from pure noise with noise added for privacy, σ = 1: 0.8 of 100."
    )


def test_most_and_least_are_by_areas_where_a_rate_is_not_measurable():
    found = settings_found(report(cell("noise", 0.0, 1, "LEAK", 0.6), cell("noise", 0.0, 5, "LEAK", 0.7, 0.1)))
    assert found[0].startswith("Of 2 settings that were tried, all give away more than was accepted beforehand (2 of")
    assert "5 images a class from pure noise: a member scores above somebody else in 70 pairs" in found[1]
    assert "1 image a class" in found[1].partition("Least")[2]


def test_where_nothing_leaks_no_setting_is_singled_out():
    cells = [cell("noise", 0.0, ipc, "INCONCLUSIVE", 0.5, 0.02) for ipc in (1, 5)]
    (said,) = settings_found(report(*cells))
    assert said.startswith("Of 2 settings that were tried, none gives away more than was accepted beforehand")


def test_one_setting_is_no_sweep():
    assert settings_found(report(cell("noise", 0.0, 1, "LEAK", 0.6, 0.1))) == ()


@pytest.mark.parametrize("init", ["noise", "avg", "real"])
def test_advice_names_starts_only_where_they_leak(init):
    steps = settings_to_do(report(cell(init, 0.0, 5, "LEAK", 0.9, 0.5), cell(init, 0.0, 1, "LEAK", 0.9, 0.5)))
    assert steps[0].endswith("every setting that was tried leaks.")
    assert any(step.startswith("Never start images from records") for step in steps) is (init != "noise")


def test_the_first_page_tells_one_number_of_people():
    page = first_page(sample("mechanism", Word.LEAK))
    assert not any("ahead of every one" in line for line in page.found)  # of single attacks: in the tables
    assert "members are picked out; chance gives" in page.sure[0]
    assert page.do[0].startswith("Release no set, and send nothing")


def test_what_is_open_for_a_small_class_says_what_to_do_with_it():
    report = sample("files", Word.INCONCLUSIVE)
    (one,) = report["classes"]
    report["classes"] = [one, {**one, "class": 1, "members": 4, "below_minimum": True}]
    assert first_page(report).do[1] == "Release nothing of the class with too few people (table of classes)."
    report["classes"] = [one]
    assert not any("too few people" in step for step in first_page(report).do)
