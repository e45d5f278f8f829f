"""``audit files --out`` and ``audit report``: what is written, for whom, and what is never in it."""

from __future__ import annotations

import csv
import json
import stat

import jsonschema
import numpy as np
import pytest
from report_samples import sample

from fedsecure.cli import run
from fedsecure_attacks.evidence import Shown
from fedsecure_attacks.evidence.curves import curve
from fedsecure_attacks.evidence.identities import Salt, read_or_draw
from fedsecure_attacks.files import Profile, audit_files
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.report.schema import report_schema
from fedsecure_attacks.statistics.roc import Rate, tpr_at
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.strictjson import dump, files_report
from fedsecure_attacks.verdict import Word


def rows(name: str, n: int, seed: int) -> Labelled:
    rng = np.random.default_rng(seed)
    y = np.arange(n, dtype=np.int64) % 2
    return Labelled(name, (rng.standard_normal((n, 6)) + y[:, None]).astype(np.float32), y)


def grey(name: str, n: int, seed: int) -> Labelled:
    rng = np.random.default_rng(seed)
    return Labelled(name, rng.random((n, 1, 8, 8)).astype(np.float32), np.arange(n, dtype=np.int64) % 2)


@pytest.fixture(scope="module")
def planted():
    """Pictures of which two were released as they are, under a name nobody may learn."""
    members, out, others = grey("members", 24, 1), grey("non-members", 60, 2), grey("reference", 40, 3)
    x = np.concatenate([members.x[:2], grey("made", 4, 4).x])
    released = Labelled("released", x, np.concatenate([members.y[:2], np.array([0, 1, 0, 1])]))
    profile = Profile(networks=1, with_loss=False)
    salt = Salt(b"0" * 32)

    def audit(shown: Shown):
        return audit_files(members, out, released, others, profile, shown=shown)

    return members, {
        "plain": audit(Shown(pictures=True)),
        "ids": audit(Shown(salt=salt, pictures=True)),
        "private": audit(Shown(pictures=True, private=True)),
    }


def test_the_report_follows_the_schema_and_tells_the_people(planted):
    _, audits = planted
    report = files_report(audits["plain"])
    jsonschema.Draft202012Validator(report_schema()).validate(json.loads(dump(report)))
    assert report["verdict"] == "LEAK"
    assert report["counts"]["members_released_bit_for_bit"] == 2
    assert report["counts"]["nonmembers_released_bit_for_bit"] == 0
    assert report["people"]["exposed"] >= 2
    assert report["people"]["of"] == 24
    first, second = report["gallery"][:2]
    assert first["d_member"] == second["d_member"] == 0
    assert {first["image"], second["image"]} == {0, 1}
    assert report["classes"][0] == {"class": 0, "members": 12, "released": 3, "n_min": 10, "below_minimum": False}


def test_nobody_is_named_or_shown_unless_asked_for(planted):
    _, audits = planted
    plain, ids, private = (files_report(audits[kind]) for kind in ("plain", "ids", "private"))
    assert all(entry["record"] is None for entry in plain["worst"])
    assert all(pair["member_id"] is None and pair["nonmember_id"] is None for pair in plain["gallery"])
    assert all(set(pair.get("pictures", {})) <= {"released"} for pair in plain["gallery"])
    assert all("released" not in pair.get("pictures", {}) for pair in plain["gallery"] if pair["d_member"] == 0)
    assert all(set(pair["pictures"]) == {"released", "member", "nonmember"} for pair in private["gallery"])
    assert all(len(entry["record"]) == 16 for entry in ids["worst"])


def test_ids_are_of_the_salt(planted):
    members, audits = planted
    key = members.fingerprints()[0]
    report = files_report(audits["ids"])
    named = {pair["member_id"] for pair in report["gallery"]}
    assert Salt(b"0" * 32).id(key) in named
    assert Salt(b"1" * 32).id(key) not in named
    assert "secret" not in repr(Salt(b"0" * 32))


def test_no_score_and_no_exact_distance_is_in_it(planted):
    _, audits = planted
    audit = audits["plain"]
    text = dump(files_report(audit))
    for values in audit.scored.scores.values():
        for value in values[np.abs(values) > 1e-3][:200]:
            assert f"{value:.6f}"[:-1] not in text
    for pair in files_report(audit)["gallery"]:
        assert float(f"{pair['d_member']:.2g}") == pair["d_member"]


def test_a_curve_is_the_order_statistic():
    rng = np.random.default_rng(5)
    scores = Scores(rng.standard_normal(500) + 1, rng.standard_normal(2000))
    found = curve(scores)
    for fpr, tpr, low, high in zip(*(found[k] for k in ("fpr", "tpr", "low", "high")), strict=True):
        assert low <= tpr <= high
        rate = tpr_at(scores, min(fpr, 0.999))
        if isinstance(rate, Rate) and fpr < 0.999:
            assert abs(rate.value - tpr) < 1e-6
    assert found["fpr"][0] == 1 / 2000
    assert (found["fpr"][-1], found["tpr"][-1]) == (1.0, 1.0)


def test_copies_that_repeat_by_chance_are_no_leak_by_themselves():
    """Tables of few values: rows of people who are out are in the set as well."""
    rng = np.random.default_rng(6)

    def few(name: str, n: int) -> Labelled:
        return Labelled(name, rng.integers(0, 2, (n, 4)).astype(np.float32), np.zeros(n, np.int64))

    out = few("non-members", 120)
    members = Labelled("members", out.x[:40] + 0, out.y[:40])
    members.x[:, 0] += 2  # nobody is in both pools
    released = Labelled("released", np.concatenate([members.x[:2], out.x[50:53]]), np.zeros(5, np.int64))
    audit = audit_files(members, out, released, few("reference", 60), Profile(networks=1, with_loss=False))
    assert "bit for bit" not in audit.verdict.reason or audit.verdict.word is not Word.LEAK


@pytest.fixture
def files(tmp_path):
    parts = {"members": rows("m", 40, 1), "nonmembers": rows("n", 160, 2), "released": rows("r", 6, 3)}
    given = []
    for name, part in parts.items():
        np.savez(tmp_path / f"{name}.npz", x=part.x, y=part.y)
        given += [f"--{name}", str(tmp_path / f"{name}.npz")]
    return given


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_out_writes_both_and_the_options_what_was_asked_for(files, tmp_path, capsys):
    out = tmp_path / "out"
    more = ["--out", str(out), "--with-record-ids", "--scores", str(tmp_path / "scores.npz"), "--allow", "inconclusive"]
    assert run(["audit", "files", *files, *more]) == 0
    said = capsys.readouterr()
    assert "INCONCLUSIVE is allowed: exit code 0 instead of 11" in said.err
    assert all(f"wrote {path}\n" in said.out for path in [*out.iterdir(), tmp_path / "scores.npz"])
    assert "step 12 of 12: evidence" in said.err
    assert "left" in said.err
    report = json.loads((out / "report.json").read_text())
    jsonschema.Draft202012Validator(report_schema()).validate(report)
    assert report["exit_code"] == 11
    assert report["needed"]["members"] > 1000
    with (out / "record-ids.csv").open() as file:
        table = list(csv.reader(file))
    assert table[0] == ["id", "file", "row"]
    assert report["worst"][0]["record"] in {row[0] for row in table}
    salt = read_or_draw(out)
    key, whose, row = next(entry for entry in table[1:] if entry[1] == "members")
    assert salt.id(rows("m", 40, 1).fingerprints()[int(row)]) == key
    assert whose == "members"
    with np.load(tmp_path / "scores.npz") as held:
        assert set(held.files) >= {"member", "row", "mean-tracing"}
        assert held["member"].sum() == 40
        assert sorted(held["row"][held["member"]].tolist()) == list(range(40))
    assert {mode(path) for path in [*out.iterdir(), tmp_path / "scores.npz"]} == {0o600}
    assert mode(out) == 0o700
    assert "report-roc.svg" in {path.name for path in out.iterdir()}
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "report-ipc-tpr.svg").write_text("of an earlier report")
    assert run(["audit", "files", *files, *more[:3], "--json"]) == 11
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("option", ["--with-record-ids", "--with-private-images"])
def test_people_need_a_folder(files, option, capsys):
    assert run(["audit", "files", *files, option]) == 2
    assert f"{option}: needs --out" in capsys.readouterr().err


def test_report_makes_the_page(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text(dump(sample("mechanism", Word.LEAK)))
    assert run(["audit", "report", str(path)]) == 0
    assert capsys.readouterr().out.startswith("LEAK: ")
    page = (tmp_path / "a.html").read_bytes()
    assert run(["audit", "report", str(path), "--out", str(tmp_path / "b.html")]) == 0
    assert (tmp_path / "b.html").read_bytes() == page
    assert mode(tmp_path / "b.html") == 0o600


@pytest.mark.parametrize("text", ['{"a": NaN}', "[]", "{}", "not json"])
def test_what_is_no_report_ends_with_two(tmp_path, text, capsys):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert run(["audit", "report", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "Traceback" not in error
    assert not (tmp_path / "a.html").exists()
    assert run(["audit", "report", str(tmp_path / "none.json")]) == 2
    assert run(["audit", "report", str(path), "--out", str(path)]) == 2
