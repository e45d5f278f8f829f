"""The schema of reports: published, followed by every mode, and checked by this package as an independent validator
checks it; a report from anywhere gets one line."""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest
from report_samples import ALL, sample

from fedsecure.errors import DataError
from fedsecure_attacks.report.schema import KEYWORDS, faults, report_schema
from fedsecure_attacks.report.validate import MOST_BYTES, check, read_report
from fedsecure_attacks.verdict import Word


@pytest.mark.parametrize(("mode", "word"), ALL)
def test_every_mode_follows_the_schema(mode: str, word: Word):
    report = sample(mode, word)
    jsonschema.Draft202012Validator(report_schema()).validate(report)
    assert list(faults(report, report_schema())) == []
    assert check(report) == report


def test_the_schema_is_one_and_uses_what_is_checked_here():
    jsonschema.Draft202012Validator.check_schema(report_schema())
    known = {*KEYWORDS, "$ref", "$schema", "$id", "$defs", "title", "description"}

    def walk(schema: dict) -> None:
        assert set(schema) <= known, set(schema) - known
        for name in ("properties", "patternProperties", "$defs"):
            for inner in schema.get(name, {}).values():
                walk(inner)
        for name in ("items", "additionalProperties", "propertyNames"):
            if name in schema:
                walk(schema[name])

    walk(report_schema())


WRONG = [
    (("verdict",), "SURE"), (("schema_version",), 2), (("exit_code",), 1), (("reason",), None), (("notes",), "a note"),
    (("notes",), ["x" * 20_001]), (("plan_sha256",), "00"), (("mode",), "else"), (("attacks", "copy-scan"), {}),
    (("attacks", "copy-scan", "auc"), 1.5), (("attacks", "copy-scan", "auc"), "0.5"),
    (("attacks", "copy-scan", "auc"), True), (("attacks", "copy-scan", "tpr_at_fpr_0.01"), -0.1),
    (("attacks", "copy-scan", "members"), 1.5), (("controls", "blind"), {"passed": 1, "found": ""}),
    (("people",), {"exposed": -1, "of": 3}), (("roc", "copy-scan", "fpr"), [0.5, 2.0]), (("threat_model",), "T6"),
    (("gallery", 0, "member_id"), "' onload=x"), (("gallery", 1, "pictures", "released"), "'><script>"),
    (("worst", 0, "record"), "<b>"), (("classes",), {}), (("plan",), []), (("counts", "members"), -5),
    (("counts", "members"), -0.5),
    (("attacks", "copy-scan", "auc_interval", "low"), -0.1), (("inputs_sha256", "members"), 3),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG)
def test_what_does_not_follow_it_is_found_by_both(path, value):
    report = copy.deepcopy(sample("files", Word.LEAK))
    place = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert not jsonschema.Draft202012Validator(report_schema()).is_valid(report)
    with pytest.raises(DataError, match=str(path[0])) as caught:
        check(report)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", report_schema()["required"])
def test_a_key_that_every_report_has_is_missed(name):
    report = sample("files", Word.LEAK)
    del report[name]
    with pytest.raises(DataError, match=f"{name}: missing"):
        check(report)


def test_a_report_says_one_thing():
    report = {**sample("files", Word.LEAK), "exit_code": 0}
    with pytest.raises(DataError, match="verdict LEAK does not go with exit code 0"):
        check(report)
    report = sample("files", Word.NO_LEAK_DETECTED)
    report["controls"]["blind"]["passed"] = False
    with pytest.raises(DataError, match="but a control was not passed: controls.blind"):
        check(report)
    report = sample("files", Word.LEAK)
    report["roc"]["copy-scan"] = {"fpr": [0.1], "tpr": [0.1, 0.2]}
    with pytest.raises(DataError, match="lists of different lengths"):
        check(report)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not strict JSON"), (b"[]", "the report: not object"), (b"\xff{", "not strict JSON"),
        (b'{"a": NaN}', "NaN is no number"), (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1e999}', "larger than any number"), (b'{"a": 1, "a": 2}', "a key stands twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "an integer of 5000 digits"), (b"[" * 200_000, "nested too deeply"),
        (b'{"openapi": "3.1.0"}', "schema_version: missing"), (b"\x00" * 50, "not strict JSON"),
    ],
)  # fmt: skip
def test_files_that_are_no_report_get_one_line(tmp_path, text, said):
    path = tmp_path / "report.json"
    path.write_bytes(text)
    with pytest.raises(DataError, match=said) as caught:
        read_report(path)
    assert "\n" not in str(caught.value)


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "report.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError, match="larger than 64 MiB"):
        read_report(path)


def test_a_report_on_the_disk_is_read_as_it_is(tmp_path):
    report = sample("mechanism", Word.LEAK)
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    assert read_report(path) == report
