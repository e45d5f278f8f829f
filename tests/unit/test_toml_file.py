"""No configuration file can stop its reader: bounded, never blocking, and each fault in one line that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedsecure.cli import run
from fedsecure.config import validate
from fedsecure.daemon_settings import TlsSettings
from fedsecure.data.settings import Simulation
from fedsecure.errors import ConfigError
from fedsecure.plan import Plan, load_plan
from fedsecure.plan.examples import read_example
from fedsecure.policy import load_policy
from fedsecure.toml_file import MAX_CONFIG_BYTES, load_toml
from fedsecure_node.plans.institution import PolicyUnusable, PolicyWatch

#: name -> (text, what the line says after the file's name)
HOSTILE = {
    "brackets": ("a = " + "[" * 5000 + "]" * 5000, "has tables or lists nested too deeply"),
    "inline tables": ("a = " + "{a = " * 3000 + "1" + "}" * 3000, "has tables or lists nested too deeply"),
    "dotted key": ("a = {" + ".".join(["x"] * 5000) + " = 1}", "a.x.x: has tables or lists nested too deeply"),
    "dotted key alone": (".".join(["x"] * 5000) + " = 1", "x.x.x: has tables or lists nested too deeply"),
    "long integer": ("seed = " + "9" * 5000, "not valid TOML: a number or a date is out of range"),
    "hexadecimal integer": ("seed = 0x" + "f" * 5000, "seed: a whole number of more than 64 bits"),
    "integer of 65 bits": ("seed = 9223372036854775808", "seed: a whole number of more than 64 bits"),
    "date": ("seed = 2024-01-01", "seed: 2024-01-01 is a date or a time"),
    "time in a list": ("[a]\nb = [1, 07:32:00]", "a.b.1: 07:32:00 is a date or a time"),
    "no date": ("seed = 2024-02-31", "not valid TOML"),
    "NUL in a path": ('[simulation]\npath = "a\\u0000b"', "simulation.path: holds a NUL character"),
    "NUL in a key": ('["a\\u0000b"]\nc = 1', "(top level): a key holds a NUL character"),
    "too large": ("# " + "x" * MAX_CONFIG_BYTES, f"larger than {MAX_CONFIG_BYTES} bytes"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line_that_names_it(name: str, tmp_path: Path) -> None:
    text, says = HOSTILE[name]
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_toml(path)
    assert str(caught.value).startswith(f"{path}: {says}")
    assert "\n" not in str(caught.value)
    assert run(["plan", "check", str(path)]) == 3


@pytest.mark.parametrize("name", HOSTILE)
def test_a_daemon_holds_still_on_a_hostile_policy(name: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(HOSTILE[name][0])
    watch = PolicyWatch(path)
    with pytest.raises(PolicyUnusable):
        watch.read()
    path.write_text("format = 1\n")
    assert watch.read().policy.plans.methods == ()


def test_a_named_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is a named pipe, not a regular file"):
        load_policy(path)
    with pytest.raises(PolicyUnusable, match="is a named pipe"):
        PolicyWatch(path).read()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="is a device, not a regular file"):
        load_toml(Path(path))


def test_a_link_to_a_device_is_refused_and_one_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="is a device"):
        load_toml(tmp_path / "a.toml")
    (tmp_path / "b").write_text("x = 1")
    (tmp_path / "b.toml").symlink_to("b")
    assert load_toml(tmp_path / "b.toml") == {"x": 1}


def _from_shell(command: str) -> subprocess.CompletedProcess[str]:
    command = f'fedsecure() {{ "{sys.executable}" -m fedsecure "$@"; }}; {command}'
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=240, check=False)


def test_what_the_shell_has_opened_is_read(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(read_example("digits-fedavg"))
    for command in (f"fedsecure plan check <(sleep 0.2; cat {plan})", f"cat {plan} | fedsecure plan check /dev/stdin"):
        done = _from_shell(command)
        assert (done.returncode, done.stderr) == (0, "")


def test_no_more_than_the_bound_is_read_of_an_endless_stream() -> None:
    done = _from_shell("fedsecure plan check <(cat /dev/zero)")
    assert done.returncode == 3
    assert f"larger than {MAX_CONFIG_BYTES} bytes" in done.stderr


def test_keys_cannot_break_or_steer_the_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('"a\\u001b[2J\\nb" = 1\n')
    with pytest.raises(ConfigError) as caught:
        load_plan(path)
    assert str(caught.value).isprintable()


def test_a_home_folder_that_there_is_not_names_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    text = read_example("digits-fedavg")
    path.write_text(text.replace('kind = "digits"', 'kind = "npz"\npath = "~nobodyx/a.npz"'))
    with pytest.raises(ConfigError) as caught:
        load_plan(path)
    assert str(caught.value).startswith(f"{path}: simulation.data.path: ~nobodyx/a.npz: no such home folder")
    with pytest.raises(ConfigError, match=r"^node.toml: key: ~nobodyx/k: no such home folder"):
        validate(TlsSettings, {"key": "~nobodyx/k"}, "node.toml")


def test_nul_in_a_path_that_comes_as_json_is_refused() -> None:
    data = {"data": {"kind": "npz", "path": "a\0b"}, "partition": {"kind": "dirichlet", "nodes": 2, "alpha": 1.0}}
    with pytest.raises(ConfigError, match=r"^here: data.path: a path holds no NUL character"):
        validate(Simulation, data, "here")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("method", "method: needs the key name (allowed: 'fedaf', 'feddm', 'fedavg', 'fedspm', 'feddrm')"),
        ("model", "model: needs the key name (allowed: 'convnet', 'resnet', 'lenet', 'mlp')"),
        ("task", "task: needs the key kind (allowed: 'image', 'table')"),
    ],
)
def test_a_table_without_what_chooses_its_form_says_which_there_are(table: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Plan, {"format": 1, "name": "p", "rounds": 1, "task": {}, "model": {}, "method": {}}, "plan.toml")
    assert says in str(caught.value)


def test_json_nested_too_deeply_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^plan 0123: "):
        validate(Plan, b"[" * 100_000 + b"]" * 100_000, "plan 0123")
