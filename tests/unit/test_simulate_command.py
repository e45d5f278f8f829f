"""``fedsecure simulate``: files, resumption, and refusals that name the node or the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
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


def npz_plan(tmp_path: Path, labels: np.ndarray, seed: int = 0) -> Path:
    """A plan over two halves of an archive each, whose labels may differ while their counts stay."""
    rng = np.random.default_rng(seed)
    x = rng.random((60, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x, y=labels)
    np.savez(tmp_path / "test.npz", x=x[:10], y=labels[:10])
    path = tmp_path / "plan.toml"
    path.write_text(
        PLAN.replace('data = {kind = "digits"}', 'data = {kind = "npz", path = "data.npz"}')
        .replace("alpha = 1.0}", 'alpha = 50.0, min_size = 1}\ntest = {kind = "npz", path = "test.npz"}')
        .replace("limit = 200\n", "")
    )  # fmt: skip
    return path


def arguments(plan: Path) -> list[str]:
    return ["simulate", str(plan), "--out", str(plan.parent / "out"), "--device", "cpu", "--threads", "1"]


LABELS = np.arange(60) % 10


@pytest.mark.parametrize("changed", ["records", "labels", "test"])
def test_a_run_over_other_records_of_the_same_counts_starts_anew(
    changed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = npz_plan(tmp_path, LABELS)
    assert run(arguments(plan)) == 0
    assert "starts anew" not in capsys.readouterr().err
    if changed == "test":
        with np.load(tmp_path / "test.npz") as held:
            x, y = held["x"], held["y"]
        np.savez(tmp_path / "test.npz", x=x, y=np.roll(y, 1))
    else:
        npz_plan(tmp_path, LABELS if changed == "records" else (LABELS + 1) % 10, seed=int(changed == "records"))
    assert run(arguments(plan)) == 0
    found = capsys.readouterr()
    assert "(from before)" not in found.out
    assert "checkpoint.json: belongs to other records" in found.err


def test_a_run_of_another_plan_in_the_same_folder_starts_anew_and_says_so(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments(plan)) == 0
    plan.write_text(PLAN.replace("local_steps = 2", "local_steps = 3"))
    assert run(arguments(plan)) == 0
    assert "checkpoint.json: belongs to another plan; the run starts anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("checkpoint.json", lambda b: b.replace(b'"round": 1', b'"round": 7', 1), "checkpoint.json: is damaged"),
        ("checkpoint.json", lambda b: b[:-3], "checkpoint.json: is damaged"),
        ("checkpoint.json", lambda b: b"[]", "checkpoint.json: is damaged"),
        ("checkpoint.json", lambda b: b"[" * 100_000, "checkpoint.json: is damaged"),
        ("checkpoint.safetensors", lambda b: b[:40], "checkpoint.safetensors: is damaged"),
        ("checkpoint.safetensors", lambda b: b[:-1] + bytes([b[-1] ^ 1]), "checkpoint.safetensors: is not of the same"),
        ("checkpoint.safetensors", None, "checkpoint.json: has no other half"),
    ],
)
def test_a_damaged_checkpoint_starts_anew_by_name(
    name: str, damage: Any, says: str, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments(plan)) == 0
    path = plan.parent / "out" / name
    path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    capsys.readouterr()
    assert run([*arguments(plan), "--json"]) == 0
    found = capsys.readouterr()
    assert says in found.err
    assert "the run starts anew" in found.err
    assert [entry["round"] for entry in json.loads(found.out)["rounds"]] == [1, 2]


def test_out_that_is_a_file_is_found_out_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = npz_plan(tmp_path, LABELS)
    (tmp_path / "data.npz").unlink()
    for out in ("file", "file/below"):
        (tmp_path / "file").write_bytes(b"")
        assert run(["simulate", str(plan), "--out", str(tmp_path / out)]) == 3
        assert f"{out}: cannot be made a folder" in capsys.readouterr().err


def test_threads_have_a_bound(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments(plan)[:-1], "1025"]) == 2
    assert "1024" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cohort", "says"),
    [
        ('nodes = ["a", "b", "c"]', "records to 'node-1', 'node-2', 'node-3', but cohort.nodes names 'a', 'b', 'c'"),
        (
            'nodes = ["node-1", "node-2", "node-3", "node-4"]',
            "but cohort.nodes names 'node-1', 'node-2', 'node-3', 'no",
        ),
        ("min_nodes = 4", "simulation.partition deals records to 3 nodes, but cohort.min_nodes is 4"),
    ],
)
def test_a_cohort_that_the_partition_does_not_deal_to_is_named_before_data_are_read(
    cohort: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = npz_plan(tmp_path, LABELS)
    (tmp_path / "data.npz").unlink()
    plan.write_text(plan.read_text().replace("[simulation]", f"[cohort]\n{cohort}\n[simulation]"))
    assert run(arguments(plan)) == 3
    assert says in capsys.readouterr().err


def test_a_column_that_names_other_nodes_than_the_cohort_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.csv").write_text("site,age,y\n" + "\n".join(f"s{i % 3},{i},{'ab'[i % 2]}" for i in range(60)))
    plan = tmp_path / "plan.toml"
    plan.write_text("""
format = 1
name = "tiny"
rounds = 1
[task]
kind = "table"
classes = ["a", "b"]
columns = [{kind = "numeric", name = "age", low = 0, high = 100, mean = 50, std = 10}]
[model]
name = "mlp"
[method]
name = "fedavg"
[cohort]
nodes = ["s0", "s1", "s3"]
[simulation]
data = {kind = "csv", path = "t.csv", label = "y"}
partition = {kind = "column", column = "site"}
""")
    assert run(arguments(plan)) == 3
    assert "deals records to 's0', 's1', 's2', but cohort.nodes names 's0', 's1', 's3'" in capsys.readouterr().err
