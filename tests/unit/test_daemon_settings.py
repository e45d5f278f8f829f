"""What both daemons' settings share, alike in node.toml and coordinator.toml: names, paths, TLS files, devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsecure.compute import ComputeSettings, choose_device
from fedsecure.errors import ConfigError
from fedsecure_coordinator import settings as coordinator_settings
from fedsecure_coordinator.setup import example as coordinator_example
from fedsecure_node import settings as node_settings
from fedsecure_node.cli.first_steps import example as node_example

Load = Callable[[str], Any]


@pytest.fixture(params=["node", "coordinator"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Load:
    """Writes the side's example, changed, into a folder, and loads it. ``load.text`` is the example."""
    text, module = {
        "node": (node_example("node.example.toml"), node_settings),
        "coordinator": (coordinator_example(), coordinator_settings),
    }[request.param]

    def run(old: str = "", new: str = "") -> Any:
        assert old in text
        (tmp_path / f"{request.param}.toml").write_text(text.replace(old, new, 1) if old else text)
        return module.load_settings(tmp_path)

    return run


@pytest.mark.parametrize("module", [node_settings, coordinator_settings])
def test_an_absent_file_is_one_line_with_the_next_command(module: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="toml: no such file") as caught:
        module.load_settings(tmp_path)
    assert " init " in caught.value.hint


def test_home_folders_are_known(load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert load('store = "store"', 'store = "~/s"').store == tmp_path / "home" / "s"
    assert load('key = "tls.key"', 'key = "~/k"').tls.key == tmp_path / "home" / "k"
    with pytest.raises(ConfigError, match="no such home folder"):
        load('store = "store"', 'store = "~no-such-user-here/s"')


def test_a_list_of_revocations_that_is_named_must_be_there(load: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.crl: .*gone.pem does not exist"):
        load('# crl = "crl.pem"', 'crl = "gone.pem"')
    assert (load().tls.crl, load().tls.crl_place) == (None, tmp_path / "crl.pem")
    (tmp_path / "crl.pem").write_text("")
    assert load().tls.crl == tmp_path / "crl.pem"


@pytest.mark.parametrize("name", ["a" * 64, "A", "a..b", "-a", "a/b", ""])
def test_both_sides_know_the_same_names_of_federations(load: Load, name: str) -> None:
    line = next(text for text in ('federation = "heart-study"', 'federation = "example.org"') if _has(load, text))
    assert load(line, f'federation = "{"a" * 63}"').federation == "a" * 63
    with pytest.raises(ConfigError, match="federation: federation name .* is malformed"):
        load(line, f'federation = "{name}"')


def _has(load: Load, text: str) -> bool:
    try:
        load(text, text)
    except AssertionError:
        return False
    return True


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (choose_device("auto"), choose_device("cpu")) == ("cpu", "cpu")
    with pytest.raises(ConfigError, match="device: cuda is not there") as caught:
        choose_device("cuda")
    assert "auto or cpu" in caught.value.hint
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (choose_device("auto"), choose_device("cuda:1")) == ("cuda", "cuda:1")
    with pytest.raises(ConfigError, match=r"compute\.device: cuda:2 is not there"):
        choose_device("cuda:2", "compute.device")
    for name in ("tpu", "cuda:", "cuda:x", "cpu:1", ""):
        with pytest.raises(ConfigError, match="is not known"):
            choose_device(name)


def test_threads_are_bounded_on_request() -> None:
    before = torch.get_num_threads()
    try:
        assert ComputeSettings(device="cpu", threads=before + 1).apply() == "cpu"
        assert torch.get_num_threads() == before + 1
        assert ComputeSettings(device="cpu").apply() == "cpu"
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
