"""``fedsecure simulate``: files, resumption, and refusals that name the node or the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsecure.cli import run

PLAN = """
format = 1
name = "tiny"
rounds = 2
[task]
kind = "image"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
shape = [1, 8, 8]
[model]
name = "mlp"
hidden = [8]
[method]
name = "fedavg"
local_steps = 2
[simulation]
data = {kind = "digits"}
partition = {kind = "dirichlet", nodes = 3, alpha = 1.0}
limit = 200
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_result_model_and_resumption(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(plan), "--out", str(tmp_path / "out"), "--device", "cpu", "--threads", "1"]
    assert run([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [entry["round"] for entry in result["rounds"]] == [1, 2]
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == result
    model = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert run(arguments) == 0
    assert capsys.readouterr().out.count("(from before)") == 2
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == model


def test_a_share_that_cannot_take_part_is_that_of_a_named_node(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.write_text(PLAN.replace('name = "fedavg"\nlocal_steps = 2', 'name = "fedaf"\nmin_count = 1000'))
    assert run(["simulate", str(plan), "--out", str(tmp_path / "out")]) == 15
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("error: node node-1: no class has 1000 records (method.min_count)")
    assert error[1].startswith("hint: take part with more records")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_bytes(b"")
    assert run(["simulate", str(plan), "--out", str(tmp_path / "out")]) == 3
    assert "out: cannot be made a folder" in capsys.readouterr().err
