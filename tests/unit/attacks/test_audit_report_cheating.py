"""What a report says of a coordinator that cheats: on the first page, in tables, and of a block in another form."""

from __future__ import annotations

import pytest
from report_samples import cheating, sample

from fedsecure_attacks.report.cheating import advice, first_words, sentences, tables
from fedsecure_attacks.report.render import html
from fedsecure_attacks.report.words import first_page
from fedsecure_attacks.verdict import Word


def test_the_first_page_says_what_a_coordinator_that_cheats_learns_and_what_to_do():
    page = first_page(sample("mechanism", Word.NO_LEAK_DETECTED))
    (said,) = [line for line in page.found if line.startswith("Asked besides")]
    assert "Without a defence, after one round it knows whether that person is in." in said
    assert said.endswith("Nothing more than was accepted under: noise, sigma 8, minimum of records.")
    assert page.do[-1].startswith("Against a coordinator that cheats: differential privacy")


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (("NO-LEAK-DETECTED", "NO-LEAK-DETECTED"), "No more than was accepted"),
        (("LEAK", "LEAK"), "Without a defence, more than was accepted. No defence that was tried held."),
    ],
)
def test_it_says_what_was_found_and_nothing_else(verdicts, words):
    kinds = [{"trained": {"verdict": verdict, "one_round_isolates_one_person": False}} for verdict in verdicts]
    report = {"active": {"defences": dict(zip(("none", "logit clip"), kinds, strict=True))}}
    assert first_words(report)[0].endswith(words) or words in first_words(report)[0]
    assert bool(advice(report)) is (verdicts[0] == "LEAK")


def test_where_it_was_not_asked_nothing_is_said_of_it():
    report = sample("files", Word.LEAK)
    assert "active" not in report
    assert first_words(report) == advice(report) == ()
    assert "Asked besides" not in html(report)


def test_tables_have_a_row_for_each_trap_and_each_defence():
    traps, besides, forged, erased = tables(cheating())
    assert [row[:2] for row in traps.rows] == [
        ("none", "trained"), ("none", "forged unit"), ("logit clip", "trained"), ("noise, sigma 8", "trained"),
        ("minimum of records", "trained"),
    ]  # fmt: skip
    assert traps.rows[0][2:] == ("0.97 (0.95 to 0.97)", "0.5 (0.4 to 0.6)", "yes", "LEAK")
    assert traps.rows[-1][2:] == ("–", "the node releases nothing", "no", "NO-LEAK-DETECTED")
    assert [row[0] for row in besides.rows] == ["several people by one model", "somebody else (control)"]
    assert forged.rows == (("honest model, forged averages", "0.55 (0.4 to 0.7)", "16"),)
    assert erased.rows == (("under the same model", "20 of 20", "55", "1e-06"),)
    assert all(len(row) == len(table.columns) for table in (traps, besides, forged, erased) for row in table.rows)
    text = html(sample("mechanism", Word.LEAK))
    assert "Models made to single people out, by defence" in text
    assert "does one round isolate one person? yes (trained)" in text


@pytest.mark.parametrize(
    "block",
    [
        {"defences": []},
        {"defences": {"none": 3, "x": {"trained": [1], "y": {}}}, "says": "a"},
        {"trap_model": {"many_at_once": {"auc": "<b>", "auc_interval": [1]}}, "says": [1, "b"]},
        {"trap_statistics": None, "differencing": {"a": {"named": {}}}},
        {"isolates_one_person": True, "other": {"with_clip": False}},
    ],
)
def test_a_block_in_another_form_is_shown_as_far_as_it_can_be(block):
    report = {**sample("mechanism", Word.LEAK), "active": block}
    assert "A coordinator that cheats" in html(report)
    assert all(isinstance(line, str) for line in sentences(block))
