"""One daemon for one store, and turns between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedsecure.errors import ConfigError, StoreError
from fedsecure.locks import daemon_lock, file_lock, is_held


def test_one_daemon_a_store(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    with daemon_lock(tmp_path, "node"):
        assert is_held(tmp_path)
        with (
            pytest.raises(ConfigError, match=rf"another node daemon \(process {os.getpid()}\)"),
            daemon_lock(tmp_path, "node"),
        ):
            pass
        assert is_held(tmp_path)
    assert not is_held(tmp_path)
    with daemon_lock(tmp_path, "node"):
        pass


def test_a_daemon_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from fedsecure.locks import daemon_lock
with daemon_lock(Path(sys.argv[1]), "node"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False, timeout=240)
    assert done.returncode == -9
    assert not is_held(tmp_path)


def test_who_looks_keeps_no_daemon_from_starting(tmp_path: Path) -> None:
    over = threading.Event()
    with daemon_lock(tmp_path, "coordinator"):
        pass

    def look() -> None:
        while not over.is_set():
            is_held(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            with daemon_lock(tmp_path, "coordinator"):
                pass
    finally:
        over.set()
        for looker in lookers:
            looker.join(30)


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"), daemon_lock(tmp_path / "nowhere", "node"):
        pass
    (tmp_path / "daemon.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="cannot be opened"), daemon_lock(tmp_path, "node"):
        pass


def test_turns(tmp_path: Path) -> None:
    with file_lock(tmp_path / "log.lock", exclusive=False):
        assert not (tmp_path / "log.lock").exists()
    order: list[str] = []
    with file_lock(tmp_path / "log.lock", exclusive=True):
        waiting = threading.Thread(target=lambda: _after(tmp_path / "log.lock", order))
        waiting.start()
        waiting.join(0.1)
        order.append("first")
    waiting.join(30)
    assert order == ["first", "second"]


def _after(lock: Path, order: list[str]) -> None:
    with file_lock(lock, exclusive=False):
        order.append("second")
