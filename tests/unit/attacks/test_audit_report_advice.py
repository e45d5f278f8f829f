"""What a first page advises is of what was audited."""

from __future__ import annotations

import pytest
from report_samples import ALL, sample

from fedsecure_attacks.report.advice import what_to_do
from fedsecure_attacks.report.words import first_page
from fedsecure_attacks.verdict import Word

OF_SETS = ("images", "the release", "same scale", "starts")
OF_PEOPLE = ("more people", "these people", "members", "Members")


def steps(mode: str, word: Word) -> str:
    return " ".join(what_to_do(sample(mode, word), ()))


@pytest.mark.parametrize(("mode", "word"), ALL)
def test_no_advice_is_of_something_else(mode, word):
    said = steps(mode, word)
    if mode in {"spm", "canaries", "selftest"}:
        assert not [words for words in OF_SETS if words in said], said
    if mode in {"canaries", "selftest"}:
        page = first_page(sample(mode, word))
        said = " ".join((*page.found, *page.sure, *page.do))
        assert not [words for words in OF_PEOPLE if words in said], said


def test_too_few_are_more_of_what_there_were_too_few_of():
    assert "--canaries" in steps("canaries", Word.INCONCLUSIVE)
    assert "larger model" in steps("canaries", Word.INCONCLUSIVE)
    assert "--rounds" in steps("canaries", Word.INCONCLUSIVE)
    assert "--halves" in steps("spm", Word.INCONCLUSIVE)
    assert "--shadows" in steps("mechanism", Word.INCONCLUSIVE)
    assert "holdout" in steps("release", Word.INCONCLUSIVE)
    assert "Audit with more people" in steps("files", Word.INCONCLUSIVE)


@pytest.mark.parametrize(("control", "said"), [("masks", "Masks do not"), ("planted, node", "do not arrive")])
def test_a_control_that_failed_is_named_in_the_terms_of_the_audit(control, said):
    report = sample("canaries", Word.INVALID)
    report["controls"] = {control: {"passed": False, "found": "no"}}
    assert said in " ".join(what_to_do(report, ()))
