"""Plan files: strict, one line for every fault, one digest for one plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedsecure.config import validate
from fedsecure.errors import ConfigError, RemoteProtocolError
from fedsecure.plan import Plan, load_plan

TEXT = """
format = 1
name = "p"
rounds = 3
[task]
kind = "image"
classes = ["0", "1"]
shape = [1, 8, 8]
[model]
name = "convnet"
width = 8
depth = 2
[method]
name = "fedaf"
ipc = 5
[simulation]
data = {kind = "npz", path = "d.npz"}
partition = {kind = "dirichlet", nodes = 3, alpha = 0.1}
"""
TABLE = """
format = 1
name = "t"
rounds = 1
model = {name = "mlp"}
method = {name = "fedavg"}
[task]
kind = "table"
classes = ["no", "yes"]
columns = [
  {kind = "numeric", name = "age", low = 0, high = 120, mean = 50, std = 10, missing = "indicator"},
  {kind = "categorical", name = "sex", levels = ["f", "m"], missing = "level"},
]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_loads_and_resolves_the_preset(tmp_path: Path) -> None:
    plan, simulation = load_plan(write(tmp_path, TEXT))
    assert plan.method.name == "fedaf"
    assert plan.method.init == "noise"
    assert simulation is not None
    assert simulation.data.path == tmp_path / "d.npz"


def test_the_simulation_table_is_not_part_of_the_identity(tmp_path: Path) -> None:
    plan, _ = load_plan(write(tmp_path, TEXT))
    other, none = load_plan(write(tmp_path, TEXT.split("[simulation]", maxsplit=1)[0]))
    assert none is None
    assert plan.digest() == other.digest()


@pytest.mark.parametrize("change", [("rounds = 3", "rounds = 4"), ("ipc = 5", "ipc = 6"), ('"0", "1"', '"1", "0"')])
def test_every_setting_is_part_of_the_identity(tmp_path: Path, change: tuple[str, str]) -> None:
    plan, _ = load_plan(write(tmp_path, TEXT))
    other, _ = load_plan(write(tmp_path, TEXT.replace(*change)))
    assert plan.digest() != other.digest()


def test_travels_as_canonical_json_and_nothing_else(tmp_path: Path) -> None:
    plan, _ = load_plan(write(tmp_path, TEXT))
    assert Plan.from_wire(plan.canonical(), plan.digest()) == plan
    with pytest.raises(RemoteProtocolError, match="another digest"):
        Plan.from_wire(plan.canonical(), "0" * 64)
    import hashlib

    loose = json.dumps(json.loads(plan.canonical()), indent=1).encode()
    with pytest.raises(RemoteProtocolError, match="canonical form"):
        Plan.from_wire(loose, hashlib.sha256(loose).hexdigest())


def test_departures_from_the_preset_are_listed(tmp_path: Path) -> None:
    plan, _ = load_plan(write(tmp_path, TEXT.replace("ipc = 5", 'ipc = 5\ninit = "avg"')))
    assert any(line.startswith("init = avg (preset: noise)") for line in plan.departures())
    paper, _ = load_plan(write(tmp_path, "preset = 'paper'\n" + TEXT.replace("ipc = 5", "")))
    assert paper.departures() == []
    assert paper.method.init == "avg"
    assert paper.method.ipc == 50


def test_no_bound_on_logits_is_a_word_in_the_file_and_in_the_canonical_form(tmp_path: Path) -> None:
    plan, _ = load_plan(write(tmp_path, TEXT.replace("ipc = 5", 'logit_clip = "none"')))
    assert plan.method.max_logit is None
    assert json.loads(plan.canonical())["method"]["logit_clip"] == "none"
    assert any(line.startswith("logit_clip = none (preset: 20.0)") for line in plan.departures())
    bounded, _ = load_plan(write(tmp_path, TEXT.replace("ipc = 5", "logit_clip = 20")))
    assert json.loads(bounded.canonical())["method"]["logit_clip"] == 20.0
    assert Plan.from_wire(bounded.canonical(), bounded.digest()) == bounded


def test_local_steps_take_the_place_of_the_presets_epochs(tmp_path: Path) -> None:
    text = TABLE.replace('{name = "fedavg"}', '{name = "fedavg", local_steps = 4}')
    plan, _ = load_plan(write(tmp_path, text))
    assert plan.method.local_epochs is None
    assert plan.departures() == []


def test_table_features_are_counted(tmp_path: Path) -> None:
    plan, _ = load_plan(write(tmp_path, TABLE))
    assert plan.task.feature_shape == (2 + 3,)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("ipc = 5", "ipc = 0", "method.ipc: 0 is out of range (allowed: >= 1)"),
        ("ipc = 5", "ipcc = 5", "method.ipcc: unknown key (known: augment"),
        ("ipc = 5", 'ipc = "5"', "method.ipc: '5' should be integer"),
        ("ipc = 5", "ipc = 5.0", "method.ipc: 5.0 should be integer"),
        ("ipc = 5", "ipc = true", "method.ipc: True should be integer"),
        ("ipc = 5", 'init = "foo"', "method.init: 'foo' is not one of 'noise', 'avg' or 'real'"),
        ("ipc = 5", "lr_img = nan", "method.lr_img: nan should be a finite number"),
        ("ipc = 5", "lr_img = inf", "method.lr_img: inf should be a finite number"),
        ("ipc = 5", "logit_clip = 0", "method.logit_clip: 0 is out of range (allowed: > 0 and <= 1e+06, or 'none')"),
        ("ipc = 5", 'logit_clip = "off"', "method.logit_clip: 'off' is out of range"),
        ("ipc = 5", "[method.server]\nepoch = 3", "method.server.epoch: unknown key (known: batch"),
        ('"fedaf"', '"fedxx"', "method.name: 'fedxx' is not known (allowed: 'fedaf', 'feddm', 'fedavg', 'fedspm', "),
        ("rounds = 3", "", "rounds: missing"),
        ("rounds = 3", "rounds = 3\npreset = 'papper'", "preset: 'papper' is not one of"),
        ("rounds = 3", "rounds = 3\nseed = -1", "seed: -1 is out of range"),
        ('kind = "image"', "", "task: needs the key kind"),
        ('"0", "1"', '"0", "0"', "class '0' is named twice"),
        ("depth = 2", "depth = 4", "model.depth 4 halves 8 pixels below one (allowed: <= 3)"),
        ("alpha = 0.1", "alpha = 0", "simulation.partition.alpha: 0 is out of range"),
        ("format = 1", "format = 2", "format: 2 is not one of 1"),
        ("rounds = 3", "rounds = 2026-01-01", "rounds: 2026-01-01 is a date or a time"),
        ("[task]", "[cohort]\nnodes = ['a']\n[task]", "1 nodes are named but min_nodes is 3"),
        ("[task]", "[cohort]\nnodes = ['A/b', 'b', 'c']\n[task]", "cohort.nodes.0"),
        ("shape = [1, 8, 8]", "shape = [1, 8]", "task.shape"),
        ('name = "p"', 'name = "Heart digits"', "name: 'Heart digits' is not a plan's name: lower-case letters"),
        ('classes = ["0", "1"]', 'classes = ["0"]', "task.classes: has too few entries (allowed: >= 2)"),
        ("[task]", "[cohort]\nnodes = ['A/b', 'b', 'c']\n[task]", "cohort.nodes.0: 'A/b' is not a node id: lower-case"),
        ("[model]", "[model", "not valid TOML"),
    ],
)
def test_every_fault_is_one_line_with_file_and_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = write(tmp_path, TEXT.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_plan(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


COHORT = "[cohort]\nmin_nodes = {least}\nnodes = {nodes}\n[task]"


@pytest.mark.parametrize(
    ("secagg", "nodes", "least", "says"),
    [
        ("required", [], 3, "secagg 'required': cohort.nodes is empty"),
        ("optional", [], 3, "secagg 'optional': cohort.nodes is empty"),
        ("required", ["a", "b"], 1, "secagg 'required': cohort.nodes names 2 (allowed: 3 to 64)"),
        ("required", [f"n{i}" for i in range(65)], 44, "cohort.nodes names 65 (allowed: 3 to 64)"),
        ("optional", ["a", "b", "c", "d", "e"], 3, "cohort.min_nodes 3 where no sum is unmasked of fewer than 4 of 5"),
        ("on", ["a", "b", "c"], 3, "secagg: 'on' is not one of 'required', 'optional' or 'off'"),
    ],
)
def test_a_cohort_that_cannot_be_masked_is_refused_in_one_line(
    tmp_path: Path, secagg: str, nodes: list[str], least: int, says: str
) -> None:
    text = TEXT.replace("[task]", COHORT.format(least=least, nodes=nodes)).replace(
        "rounds = 3", f'rounds = 3\nsecagg = "{secagg}"'
    )
    with pytest.raises(ConfigError) as caught:
        load_plan(write(tmp_path, text))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("secagg", ["required", "optional"])
def test_masks_are_part_of_the_identity_and_off_by_default(tmp_path: Path, secagg: str) -> None:
    text = TEXT.replace("[task]", COHORT.format(least=4, nodes=["a", "b", "c", "d", "e"]))
    plain, _ = load_plan(write(tmp_path, text))
    masked, _ = load_plan(write(tmp_path, text.replace("rounds = 3", f'rounds = 3\nsecagg = "{secagg}"')))
    assert (plain.secagg, masked.secagg) == ("off", secagg)
    assert plain.digest() != masked.digest()


def test_a_method_that_sums_nothing_has_nothing_to_mask(tmp_path: Path) -> None:
    text = TEXT.replace("rounds = 3", 'rounds = 3\nsecagg = "required"').replace('"fedaf"', '"feddm"')
    with pytest.raises(ConfigError, match="method 'feddm' sums nothing, so nothing is masked"):
        load_plan(write(tmp_path, text.replace("[task]", COHORT.format(least=3, nodes=["a", "b", "c"]))))


def test_images_for_a_table_and_the_reverse_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs images"):
        load_plan(write(tmp_path, TABLE.replace('{name = "mlp"}', '{name = "convnet"}')))


@pytest.mark.parametrize("content", [b"\xff\xfe\x00x", b"\x00", b"a = 1\na = 2"])
def test_odd_files_are_config_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plän mit leerzeichen.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="plän mit leerzeichen"):
        load_plan(path)


def test_missing_files_and_folders_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_plan(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="is a directory"):
        load_plan(tmp_path)
    big = tmp_path / "big.toml"
    big.write_text("#" * (1 << 20) + "\n")
    with pytest.raises(ConfigError, match="larger than"):
        load_plan(big)


def test_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert load_plan(path)[0].name == "p"


def test_the_wire_form_refuses_unknown_keys(tmp_path: Path) -> None:
    plan, _ = load_plan(write(tmp_path, TEXT))
    raw = json.loads(plan.canonical())
    raw["code"] = "import os"
    with pytest.raises(ConfigError, match="code: unknown key"):
        validate(Plan, json.dumps(raw).encode(), "plan")
