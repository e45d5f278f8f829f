"""``fedsecure audit files``: exit codes, strict JSON that is the same twice, and files that are not what they should
be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedsecure.cli import run


def written(folder: Path, name: str, n: int, rng: np.random.Generator, x: np.ndarray | None = None) -> str:
    y = np.arange(n) % 2
    rows = rng.standard_normal((n, 6)) + y[:, None] if x is None else x
    path = folder / f"{name}.npz"
    np.savez(path, x=rows.astype(np.float32), y=y)
    return str(path)


@pytest.fixture
def three(tmp_path):
    rng = np.random.default_rng(0)
    files = {name: written(tmp_path, name, n, rng) for name, n in (("members", 40), ("nonmembers", 160))}
    files["released"] = written(tmp_path, "released", 6, rng)
    return files


def command(files: dict[str, str], *more: str) -> list[str]:
    return ["audit", "files", *(part for name, path in files.items() for part in (f"--{name}", path)), *more]


def strict(text: str) -> dict:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


def test_json_is_strict_and_the_same_twice(three, capsys):
    assert run(command(three, "--json")) == 11
    first = capsys.readouterr().out
    report = strict(first)
    assert report["verdict"] == "INCONCLUSIVE"
    assert report["exit_code"] == 11
    attack = report["attacks"]["mean-tracing-quantile"]
    assert attack["tpr_at_fpr_0.01"] is None
    assert attack["tpr_at_fpr_0.01_reason"] == "80 non-members are too few (at least 1000)"
    assert 0 < attack["tail_test_p"] <= 1
    assert attack["members"] == 40
    assert attack["auc_interval"]["low"] <= attack["auc"] <= attack["auc_interval"]["high"]
    assert set(report["controls"]) == {"planted", "blind", "oracle"}
    assert run(command(three, "--json")) == 11
    assert capsys.readouterr().out == first


def test_one_changed_value_changes_what_the_report_is_bound_to(three, tmp_path, capsys):
    run(command(three, "--json"))
    before = strict(capsys.readouterr().out)
    with np.load(three["released"]) as held:
        x, y = held["x"].copy(), held["y"]
    x[0, 0] += 1e-3
    np.savez(three["released"], x=x, y=y)
    run(command(three, "--json"))
    after = strict(capsys.readouterr().out)
    assert before["inputs_sha256"]["released"] != after["inputs_sha256"]["released"]
    assert before["inputs_sha256"]["members"] == after["inputs_sha256"]["members"]


def test_members_that_were_released_are_a_leak(three, tmp_path, capsys):
    with np.load(three["members"]) as held:
        np.savez(three["released"], x=held["x"][:4], y=held["y"][:4])
    assert run(command(three)) == 10
    out = capsys.readouterr().out
    assert out.startswith("LEAK: 4 members were released bit for bit")


def test_nan_in_the_released_set_is_invalid_and_named(three, tmp_path, capsys):
    with np.load(three["released"]) as held:
        x, y = held["x"].copy(), held["y"]
    x[2, :3] = np.nan
    np.savez(three["released"], x=x, y=y)
    assert run(command(three, "--json")) == 12
    assert strict(capsys.readouterr().out)["reason"] == "released: array x holds 3 values that are not finite"


def test_only_one_kind_is_invalid(three, tmp_path, capsys):
    np.savez(three["nonmembers"], x=np.zeros((0, 6), np.float32), y=np.zeros(0, np.int64))
    assert run(command(three)) == 12
    assert "non-members: no record" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros((6, 1, 4, 4), np.int32), "array 'x' is int32"),
        (np.full((6, 1, 4, 4), 1.5, np.float32), "pixels from 1.5 to 1.5"),
        (np.zeros(6, np.float32), "array 'x' is float32 [6]"),
    ],
)
def test_files_that_are_not_what_they_should_be(three, tmp_path, capsys, x, said):
    np.savez(three["released"], x=x, y=np.arange(6) % 2)
    assert run(command(three)) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_missing(three, capsys):
    assert run(command({**three, "released": "/nowhere.npz"})) == 2
    assert "/nowhere.npz" in capsys.readouterr().err


def test_objects_are_never_unpickled(three, capsys):
    np.savez(three["released"], x=np.array([{}], dtype=object), y=np.zeros(1))
    assert run(command(three)) == 2
    assert "pickles" in capsys.readouterr().err
