"""Daemons that are forked from one process that imported everything already (fork_server.py). A node may be told at
which stage of a session it is to kill itself (kill -9), and a coordinator to do so when it has the second round's sum
in memory alone.

To die there, a forked process has one of its client's calls replaced by the same call and a SIGKILL to itself, before,
in the middle of, or after it; everything else is the node as it is shipped. So it is with the coordinator's keeping of
a sum.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fork_server import fork_context

#: Where a coordinator dies: it unmasked the second round's sum, and has not kept it.
SUM = "before the sum is kept"


class ForkedDaemon:
    """``fedsecure ROLE run`` in ``folder``, as ``subprocess.Popen`` has its processes; output is added to ``log``.

    ``dies_at``: the stage of its second session at which a node dies, or ``SUM`` for a coordinator; none: it goes on.
    ``before``: Python that is run first in the daemon's process, with its ``folder``.
    """

    def __init__(self, role: str, folder: Path, log: Path, *options: str, dies_at: str = "", before: str = "") -> None:
        # daemon: ended with the test process, which would wait for it otherwise
        arguments = (role, folder, log, options, dies_at, before)
        self._process = fork_context().Process(target=_daemon, args=arguments, daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """As it ended; minus the number of a signal."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, "the daemon did not end"
        return self.returncode


class ForkedNode(ForkedDaemon):
    """``fedsecure node run``."""

    def __init__(self, folder: Path, log: Path, dies_at: str = "") -> None:
        super().__init__("node", folder, log, dies_at=dies_at)


def _daemon(role: str, folder: Path, log: Path, options: tuple[str, ...], dies_at: str, before: str) -> None:
    from fedsecure.cli import main

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if dies_at == SUM:
        _die_with_the_sum()
    elif dies_at:
        _die(dies_at)
    exec(before, {"folder": folder})
    sys.argv = ["fedsecure", role, "run", "--dir", str(folder), *options]
    main()


def _die_with_the_sum() -> None:
    from fedsecure_coordinator.masking.sessions import Sessions

    store = Sessions._store

    def _store(self: Sessions, task: Any, sums: Any) -> None:
        if task.action.round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        store(self, task, sums)

    Sessions._store = _store  # type: ignore[method-assign]


def _die(stage: str) -> None:
    from fedsecure_node.link.client import CoordinatorClient as Client

    sessions: set[str] = set()  # one a round: the second is the one to die in
    answer, upload, masked = Client.answer_leg, Client.upload_masked, Client._masked
    afterwards = {(0, "after Advertise"), (1, "after shares"), (3, "after Consistency")}

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def answer_leg(self: Client, digest: str, session: str, leg: int, **how: Any) -> None:
        sessions.add(session)
        if len(sessions) == 2 and leg == 0 and stage == "before leg 0":
            die()
        answer(self, digest, session, leg, **how)
        if len(sessions) == 2 and (leg, stage) in afterwards:
            die()

    def upload_masked(self: Client, cleared: Any, **how: Any) -> None:
        upload(self, cleared, **how)
        if len(sessions) == 2 and stage == "after the vector":
            die()

    def parts(self: Client, cleared: Any) -> Iterator[Any]:
        for count, part in enumerate(masked(self, cleared)):
            if (
                len(sessions) == 2 and stage == "in mid-upload" and count == 2
            ):  # the header and a chunk are on their way
                time.sleep(0.5)
                die()
            yield part

    Client.answer_leg, Client.upload_masked, Client._masked = answer_leg, upload_masked, parts  # type: ignore[method-assign]
