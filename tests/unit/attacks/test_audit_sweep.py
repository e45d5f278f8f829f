"""A sweep over a mechanism, in small: what it writes, that it goes on where it was cut short, and that nothing stale or
damaged is read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedsecure.cli import run
from fedsecure_attacks.mechanism.cells import CellStore, cell_key
from fedsecure_attacks.mechanism.command import measure, people_of
from fedsecure_attacks.mechanism.grid import deployed_cells
from fedsecure_attacks.mechanism.people import People
from fedsecure_attacks.mechanism.sweep import Watch, ceiling, run_sweep
from fedsecure_attacks.mechanism.sweepfile import merged
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.strictjson import dump

SMALL = {
    "shadows": 4, "strangers": 1, "networks": 1, "models": False,
    "grid": {"ipc": [2], "sigma": [0.0, 1.0]},
    "condensation": {"steps": 10, "interval": 5, "width": 4},
}  # fmt: skip


def records(path, start, count):
    from sklearn.datasets import load_digits

    held = load_digits()
    keep = np.flatnonzero(held.target < 2)
    keep = np.random.default_rng(0).permutation(keep)[start : start + count]  # they come writer by writer
    np.savez(path, x=(held.images[keep] / 16).astype(np.float32)[:, None], y=held.target[keep])
    return str(path)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """100 zeros and ones who may be in, 200 others, 60 to test on."""
    folder = tmp_path_factory.mktemp("people")
    data = {
        "name": "files",
        "pool": records(folder / "pool.npz", 0, 100),
        "population": records(folder / "population.npz", 100, 200),
        "test": records(folder / "test.npz", 300, 60),
    }
    return merged({**SMALL, "data": data}, {}, "test")


@pytest.fixture(scope="module")
def done(sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    report, cells = measure(sweep, folder, jobs=1, backend="local", active=False)
    return folder, report, cells


class Counted(Watch):
    def __init__(self):
        self.read = self.measured = 0

    def finished(self, done, number, of):
        self.read += done.read
        self.measured += not done.read


def test_cells_curves_baselines_and_controls_are_reported(done):
    _, report, cells = done
    assert [(c["curve"], c["ipc"], c["sigma"]) for c in report["sweep"]] == [
        ("as deployed", 2, 0.0), ("as deployed", 2, 1.0), ("matched residual", 2, 0.0),
    ]  # fmt: skip
    assert set(report["controls"]) == {"oracle", "planted", "null", "direction"}
    assert {name: c["found"] for name, c in report["controls"].items() if not c["passed"]} == {}
    assert report["primary"] == "combined"
    assert "combined" in report["attacks"]
    raw = report["baselines"]["raw images"]
    assert raw == [{"ipc": 2, "tpr": 2 / 25}]
    assert report["baselines"]["dp at equal accuracy"] is None
    assert report["baselines"]["dp at equal accuracy_reason"]
    assert any(line.startswith("sigma 1 is accounted as epsilon") for line in report["notes"])
    assert cells[1].result.residual > cells[0].result.residual


def test_the_report_follows_the_schema_and_is_strict_json(done):
    from fedsecure_attacks.report.validate import check

    _, report, _ = done
    check(json.loads(dump(report), parse_constant=pytest.fail))


def test_a_second_run_reads_everything_and_gives_the_same_bytes(done, sweep):
    folder, report, _ = done
    watch = Counted()
    run_sweep(sweep, people_of(sweep), folder, jobs=1, watch=watch)
    assert (watch.read, watch.measured) == (3, 0)
    again, _ = measure(sweep, folder, jobs=1, backend="local", active=False)
    assert dump(again) == dump(report)


def test_other_processes_give_the_same_result(done, sweep, tmp_path):
    """Of one cell: two processes take a while to begin."""
    grid = sweep.grid.model_copy(update={"sigma": (0.0,), "curves": ("as deployed",)})
    one = sweep.model_copy(update={"grid": grid})
    (found,) = run_sweep(one, people_of(one), tmp_path, jobs=2)
    assert found.result == done[2][0].result


def test_people_of_another_kind_are_no_references(sweep, tmp_path):
    """Theory does not hold where the population is not the pool's: the oracle says so."""
    people = people_of(sweep)
    shifted = Labelled("population", np.clip(people.population.x + np.float32(0.2), 0, 1), people.population.y)
    control = ceiling(sweep, People(people.pool, shifted), tmp_path).controls[0]
    assert control.name == "oracle"
    assert not control.passed


@pytest.mark.parametrize("damage", ["a figure", "cut", "another cell's"])
def test_a_damaged_cell_is_measured_again(done, sweep, tmp_path, damage):
    folder, _, cells = done
    digests, cell = people_of(sweep).digests, deployed_cells(sweep)[0]
    key, store = cell_key(digests, cell.setting, sweep), CellStore(tmp_path)
    text = (folder / "cells" / f"{key}.json").read_text()
    (tmp_path / f"{key}.json").write_text(text)
    assert store.read(key, cell.setting) == cells[0].result
    if damage == "a figure":
        held = json.loads(text)
        held["result"]["attacks"]["combined"]["auc"] = 0.5
        text = json.dumps(held)
    elif damage == "cut":
        text = text[:400]
    else:
        other = cell_key(digests, deployed_cells(sweep)[1].setting, sweep)
        text = (folder / "cells" / f"{other}.json").read_text()
    (tmp_path / f"{key}.json").write_text(text)
    assert store.read(key, cell.setting) is None


def test_one_pixel_a_seed_or_a_start_is_another_cell(sweep):
    digests, setting = people_of(sweep).digests, deployed_cells(sweep)[0].setting
    pixel = {**digests, "pool": "0" * 64}
    start = deployed_cells(sweep.model_copy(update={"grid": sweep.grid.model_copy(update={"init": ("avg",)})}))[
        0
    ].setting
    keys = {
        cell_key(digests, setting, sweep),
        cell_key(pixel, setting, sweep),
        cell_key(digests, start, sweep),
        cell_key(digests, setting, sweep.model_copy(update={"seed": 1})),
        cell_key(digests, setting, sweep.model_copy(update={"shadows": 5})),
    }
    assert len(keys) == 5


def test_people_in_two_parts_are_invalid(sweep, tmp_path):
    data = sweep.data.model_copy(update={"population": sweep.data.pool})
    report, cells = measure(sweep.model_copy(update={"data": data}), tmp_path, jobs=1, backend="local", active=False)
    assert report["verdict"] == "INVALID"
    assert report["exit_code"] == 12
    assert not cells
    assert report["reason"].startswith("population: 100 of its records are candidates of pool, too")


def test_exact_means_are_the_ceiling_and_leak(sweep, tmp_path):
    fast = sweep.model_copy(update={"fast": True})
    report, cells = measure(fast, tmp_path, jobs=1, backend="local", active=False)
    assert report["verdict"] == "LEAK"
    assert len(cells) == 1
    assert report["sweep"][0]["init"] == "exact class means"
    assert report["attacks"]["mean-tracing-references"]["auc"] > 0.8


def test_a_federated_sweep_attacks_as_the_coordinator_does(sweep, tmp_path):
    grid = {"ipc": [1], "rounds": [1], "curves": ["as deployed"]}
    federated = {"nodes": 2, "server_steps": 1}
    data = sweep.data.model_dump(mode="json", exclude_none=True)
    raw = {**SMALL, "data": data, "grid": grid, "federated": federated, "condensation": {"steps": 2, "width": 4}}
    report, _ = measure(merged(raw, {}, "test"), tmp_path, jobs=1, backend="local", active=False)
    assert (report["threat_model"], report["counts"]["cells"]) == ("T3", 1)
    found = report["sweep"][0]
    assert {"combined", "combined-images", "mean-logits", "soft-labels", "mean-tracing-rounds"} <= set(found["attacks"])
    assert found["accuracy"] is not None
    assert found["attacks"]["mean-logits-pool"]["auc"] > found["attacks"]["combined-images"]["auc"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--shadows", "3"], "shadows: 3 is out of range (allowed: >= 4)"),
        (["--ipc", "1,x"], "--ipc '1,x': whole numbers"),
        (["--init", "real,zeros"], "'zeros' is not one of"),
        (["--rounds", "2"], "rounds are for federated runs"),
        (["--pool", "a.npz"], "files: pool and population are needed"),
        (["--data", "digits", "--pool", "a.npz"], "exclude each other"),
        (["--backend", "dask"], "the package 'distributed' is not installed"),
        (["--pool", "absent.npz", "--population", "absent.npz"], "absent.npz: no such file"),
    ],
)
def test_a_wrong_option_is_one_line(capsys, options, words, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["audit", "mechanism", *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error: ")
    assert "Traceback" not in said


def test_the_plan_tells_minutes_people_and_power(capsys, tmp_path):
    pool, others = records(tmp_path / "p.npz", 0, 60), records(tmp_path / "o.npz", 60, 60)
    options = ["--pool", pool, "--population", others, "--ipc", "1", "--steps", "4", "--curves", "deployed"]
    assert run(["audit", "plan", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["cells"], found["shadows"], found["members"]) == (1, 8, 240)
    assert found["seconds_of_one_processor"] >= 0
    assert found["needed"]["members"] > 240  # so "none detected" cannot be said with so few
    assert found["chance_to_say_none_detected"] < 0.8
    assert found["largest_certifiable_epsilon"] == pytest.approx(4.16, abs=0.05)
