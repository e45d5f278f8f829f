"""Running the real command line and the real daemons as processes of their own, and ending them for certain."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fedsecure.errors import RunAborted

__all__ = ["Daemons", "free_port", "run_command"]

#: A single command of the demonstration never takes this long (seconds).
COMMAND_SECONDS = 300.0
#: A daemon that got SIGTERM has this long before it is killed (seconds).
STOP_SECONDS = 20.0
#: Where a coordinator's port is sought, and how often.
PORTS, TRIES = range(20_000, 32_000), 100


def _environment(threads: int) -> dict[str, str]:
    """One thread for each daemon: they share the cores, and results do not depend on how many there are."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}


def run_command(arguments: Sequence[str]) -> str:
    """Run ``fedsecure …`` to its end; its stdout. Raises ``RunAborted`` with the command and what it said."""
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and arguments made here
            [sys.executable, "-m", "fedsecure", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
            env=_environment(1),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunAborted(f"`fedsecure {' '.join(arguments)}` took over {COMMAND_SECONDS:.0f} s") from None
    if done.returncode:
        said = _fault(done.stderr) or done.stdout.strip()
        raise RunAborted(f"`fedsecure {' '.join(arguments)}` ended with {done.returncode}: {said[-800:]}")
    return done.stdout


def _fault(text: str) -> str:
    """The error in what a command said on stderr: the message of the object on the last line, or all of the text."""
    try:
        return str(json.loads(text.strip().splitlines()[-1])["message"])
    except (ValueError, IndexError, KeyError, TypeError):
        return text.strip()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago, and that no program is given which does not ask for it: one
    below those that systems deal out to whoever opens a connection. Raises ``RunAborted`` when none is found."""
    for _ in range(TRIES):
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RunAborted(f"none of {TRIES} ports of 127.0.0.1 from {PORTS.start} to {PORTS.stop - 1} is free")


@dataclass
class _Daemon:
    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Daemons:
    """The daemons of a demonstration: started by ``start``, ended when the ``with`` block is left, however it is
    left."""

    def __init__(self) -> None:
        self._daemons: list[_Daemon] = []

    def __enter__(self) -> Daemons:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, name: str, arguments: Sequence[str], log: Path) -> None:
        """Start ``fedsecure …`` in the background, its output in ``log``."""
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments made here
                [sys.executable, "-m", "fedsecure", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=_environment(1),
                start_new_session=True,
            )
        self._daemons.append(_Daemon(name, process, log))

    def check(self) -> None:
        """Raise ``RunAborted`` with the end of its log when a daemon has died."""
        for daemon in self._daemons:
            if code := daemon.process.poll():
                tail = daemon.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-6:]
                raise RunAborted(
                    f"the daemon {daemon.name} ended with {code}: {' / '.join(tail)}", hint=f"see {daemon.log}"
                )

    def stop(self) -> None:
        """SIGTERM to all, in reverse order of starting, then SIGKILL to those that do not end."""
        for daemon in reversed(self._daemons):
            if daemon.process.poll() is None:
                daemon.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for daemon in reversed(self._daemons):
            try:
                daemon.process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                daemon.process.kill()
                daemon.process.wait()
        self._daemons.clear()
