"""``fedsecure plan sheet``: the transforms of the dual-heterogeneity benchmark as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsecure.cli import run
from fedsecure.data.dual_sheet import dual_sheet
from fedsecure.data.grid import Grid, draw_grid
from fedsecure.plan import load_plan

PLAN = """
format = 1
name = "tiny"
rounds = 1
[task]
kind = "image"
classes = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
shape = [3, 8, 8]
[model]
name = "mlp"
[method]
name = "fedavg"
[simulation]
data = {kind = "digits"}
partition = {kind = "dual-heterogeneity", nodes = 4}
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_one_record_of_each_class(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sheet.png"
    assert run(["plan", "sheet", str(plan), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"wrote {out}\n"
    with Image.open(out) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.width > 8 * 64  # 4 nodes x 2 components
        assert picture.height > 10 * 64  # 10 classes
    before = out.read_bytes()
    assert run(["plan", "sheet", str(plan), "--out", str(out)]) == 0
    assert out.read_bytes() == before


def test_one_record(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "sheet", str(plan), "--out", str(tmp_path / "a.png"), "--record", "7", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sheet"] == str(tmp_path / "a.png")
    assert told["records"] == [7]
    assert np.asarray(told["labels"]).shape == (4, 2, 10)
    assert run(["plan", "sheet", str(plan), "--out", str(tmp_path / "b.png"), "--record", "8"]) == 0
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()


def test_the_labels_are_those_of_the_deal(plan: Path) -> None:
    from fedsecure.data.dual import deal_dual

    loaded, simulation = load_plan(plan)
    assert simulation is not None
    made = dual_sheet(simulation, loaded.task, loaded.seed, "title")
    assert np.array_equal(made.permutation, deal_dual(simulation, loaded.task, loaded.seed)[1].permutation)
    assert len(made.records) == 10


@pytest.mark.parametrize(
    ("text", "arguments", "code", "says"),
    [
        (PLAN, ["--record", "1797"], 15, "no record 1797 among 1797"),
        (PLAN.split("[simulation]", maxsplit=1)[0], [], 3, "no [simulation] table"),
        (PLAN.replace('"dual-heterogeneity", nodes = 4', '"dirichlet", nodes = 4, alpha = 1.0'), [], 3, "'dirichlet'"),
        (PLAN.replace("[3, 8, 8]", "[1, 8, 8]"), [], 3, "needs images with 3 channels"),
    ],
)
def test_refusals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], code: int, says: str
) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    assert run(["plan", "sheet", str(path), "--out", str(tmp_path / "s.png"), *arguments]) == code
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error
    assert not (tmp_path / "s.png").exists()


def test_a_grid_shows_the_pixels_it_was_given(tmp_path: Path) -> None:
    images = np.zeros((1, 2, 3, 4, 4), dtype=np.float32)
    images[0, 0, 0] = 1.0  # the first one red
    images[0, 1, 2] = 1.0  # the second one blue
    path = tmp_path / "grid.png"
    path.write_bytes(draw_grid(Grid("t", images, [["a", "b" * 200]], ["row\n\x1b[1m"], [["head", "head"]], 40)))
    with Image.open(path) as picture:
        colours = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert int((colours == (255, 0, 0)).all(axis=1).sum()) == 1600
    assert int((colours == (0, 0, 255)).all(axis=1).sum()) == 1600
