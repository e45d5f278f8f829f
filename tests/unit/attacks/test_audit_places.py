"""Where audits write is looked at before they compute: no input, device or pipe is replaced, and nothing is lost at the
end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from report_samples import sample

from fedsecure.cli import run
from fedsecure.errors import ConfigError
from fedsecure_attacks.cli.places import require_places
from fedsecure_attacks.report.folder import NAMES, write_report
from fedsecure_attacks.strictjson import dump
from fedsecure_attacks.verdict import Word


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The command up to its outputs; whatever computes fails the test."""
    given = []
    for name, n in (("members", 40), ("nonmembers", 160), ("released", 6)):
        rng = np.random.default_rng(n)
        np.savez(tmp_path / f"{name}.npz", x=rng.standard_normal((n, 6)).astype(np.float32), y=np.arange(n) % 2)
        given += [f"--{name}", str(tmp_path / f"{name}.npz")]

    def never(*args: object, **more: object) -> None:
        raise AssertionError("computed before the places were looked at")

    monkeypatch.setattr("fedsecure_attacks.files.audit_files", never)
    return ["audit", "files", *given]


def test_scores_replace_no_input_by_whatever_name(files, tmp_path, capsys):
    os.link(tmp_path / "members.npz", tmp_path / "hard.npz")
    (tmp_path / "soft.npz").symlink_to(tmp_path / "released.npz")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    spelled = f"{tmp_path}/../{tmp_path.name}/nonmembers.npz"
    for place, name in (("hard.npz", "--members"), ("soft.npz", "--released"), (spelled, "--nonmembers")):
        assert run([*files, "--scores", str(tmp_path / place)]) == 2
        assert f"is {name} itself, which would be replaced" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_scores_replace_no_device_pipe_or_folder(files, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    for place, said in (("pipe", "no regular file"), ("null", "no regular file"), ("folder", "is a folder")):
        assert run([*files, "--scores", str(tmp_path / place)]) == 2
        assert said in capsys.readouterr().err
    assert (tmp_path / "null").is_symlink()


@pytest.mark.parametrize("place", ["none/scores.npz", "members.npz/scores.npz", "out/report.json"])
def test_scores_that_cannot_be_kept_are_refused_before(files, tmp_path, capsys, place):
    assert run([*files, "--scores", str(tmp_path / place), "--out", str(tmp_path / "out")]) == 2
    assert "scores.npz" in (said := capsys.readouterr().err) or "is a file of the report in --out" in said


def test_files_of_a_report_replace_no_input_and_no_pipe(files, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").symlink_to(tmp_path / "members.npz")
    assert run([*files, "--out", str(out)]) == 2
    assert "is --members itself" in capsys.readouterr().err
    (out / "report.html").unlink()
    os.mkfifo(out / "record-ids.csv")
    assert run([*files, "--out", str(out), "--with-record-ids"]) == 2
    assert "no regular file" in capsys.readouterr().err


def test_places_that_are_fine(tmp_path):
    out, plan = tmp_path / "out", tmp_path / "plan.toml"
    plan.write_text("")
    require_places({"PLAN": plan}, out=out, names=NAMES, files={"--scores": out / "s.npz"}, cache=tmp_path / "c" / "d")
    assert not out.exists()
    with pytest.raises(ConfigError, match=r"plan\.toml"):
        require_places({"PLAN": plan}, cache=plan)


@pytest.mark.parametrize(
    "command",
    [
        ["files", "--members", "a", "--nonmembers", "a", "--released", "a", "--out="],
        ["files", "--members", "a", "--nonmembers", "a", "--released", "a", "--scores="], ["report", "a", "--out="],
        ["canaries", "a", "--out="], ["spm", "a", "--out="], ["spm", "a", "--cache="], ["mechanism", "--out="],
        ["mechanism", "--cache="], ["plan", "--cache="], ["release", "1", "--out="],
    ],
)  # fmt: skip
def test_an_empty_name_is_refused(command, capsys):
    assert run(["audit", *command]) == 2
    assert "an empty name" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["canaries", "spm"])
def test_a_plan_is_not_replaced(verb, tmp_path, capsys):
    (tmp_path / "report.json").write_text("plan")
    assert run(["audit", verb, str(tmp_path / "report.json"), "--out", str(tmp_path)]) == 2
    assert "is PLAN itself" in capsys.readouterr().err
    assert (tmp_path / "report.json").read_text() == "plan"


def test_a_page_does_not_replace_its_report(tmp_path, capsys):
    report = tmp_path / "r.json"
    report.write_text(text := dump(sample("selftest", Word.INVALID)))
    os.link(report, tmp_path / "hard.html")
    (tmp_path / "r.html").symlink_to(report)
    for more in (["--out", f"{tmp_path}/./r.json"], ["--out", str(tmp_path / "hard.html")], []):
        assert run(["audit", "report", str(report), *more]) == 2
        assert "is REPORT.json itself" in capsys.readouterr().err
    assert report.read_text() == text


def test_a_pipe_is_no_report(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert run(["audit", "report", str(tmp_path / "pipe"), "--out", str(tmp_path / "page.html")]) == 2
    assert "pipe: is not a regular file" in capsys.readouterr().err
    assert run(["audit", "report", str(tmp_path)]) == 2


def test_both_ways_to_a_page_give_the_same_bytes(tmp_path):
    report = sample("spm", Word.LEAK)
    report["counts"] = {"zebras": 3, "apes": 4, **report["counts"]}
    report["plan"] = dict(reversed(report["plan"].items()))
    written = write_report(report, tmp_path / "out")
    assert {path.name for path in written} == {"report.json", "report.html", "report-roc.svg"}
    page = tmp_path / "page.html"
    assert run(["audit", "report", str(tmp_path / "out" / "report.json"), "--out", str(page)]) == 0
    assert page.read_bytes() == (tmp_path / "out" / "report.html").read_bytes()


def test_an_edited_verdict_gives_no_page(tmp_path: Path, capsys):
    report = {**sample("files", Word.LEAK), "verdict": "NO-LEAK-DETECTED", "exit_code": 0, "reason": "power: enough"}
    (tmp_path / "r.json").write_text(json.dumps(report))
    assert run(["audit", "report", str(tmp_path / "r.json")]) == 2
    assert "says NO-LEAK-DETECTED, but attacks." in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()
