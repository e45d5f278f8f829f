"""A node's work on the exchanges of a private run, in processes that are forked to be killed.

A process does what the daemon does with an exchange that it was asked for: its own store, log, ledger, gate and method,
on its own disk. Only the connection is none: what a coordinator would send lies ready, what it would receive is
acknowledged. Each computation and each drawing of counts leaves a line in ``evidence`` as it begins, by which a test
knows what was made of the records, whatever became of it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fork_server import fork_context

#: Exit codes of a process that was not killed: all rounds are done; the budget is spent.
DONE, SPENT = 0, 5


@dataclass(frozen=True)
class Killable:
    """One process at work in ``folder``, which writes what goes wrong to ``said``; it has opened everything when it is
    ``ready``. A process that ends where it should be at work fails the test at once, with how it ended."""

    process: Any
    ready: Connection
    said: Path

    def wait_ready(self, seconds: float) -> None:
        """Until it has opened everything."""
        if not self.ready.poll(seconds):
            raise AssertionError(f"not ready within {seconds} s; {self.how()}")
        try:
            assert self.ready.recv() == "ready"
        except EOFError:
            self.process.join(10.0)
            raise AssertionError(f"never ready; {self.how()}") from None

    def wait_for(self, done: Callable[[], bool], seconds: float) -> None:
        """Until ``done()``."""
        deadline = time.monotonic() + seconds
        while not done():
            assert self.process.exitcode is None, self.how()
            assert time.monotonic() < deadline, f"not within {seconds} s; {self.how()}"
            time.sleep(0.005)

    def kill(self) -> int:
        """Kill -9; returns how the process ended, which may have been before."""
        self.process.kill()
        return self.end(60.0)

    def end(self, seconds: float) -> int:
        """How it ended by itself: ``-9``, killed, or ``SPENT``."""
        self.process.join(seconds)
        self.ready.close()
        assert self.process.exitcode in (-9, SPENT), self.how()
        return int(self.process.exitcode)

    def how(self) -> str:
        """Whether and how it ended, and the end of what it said."""
        code = self.process.exitcode
        said = self.said.read_text(errors="replace")[-3000:] if self.said.exists() else ""
        return f"{self.said.parent.name}: {'at work' if code is None else f'ended with {code}'}; it said: {said or '-'}"


def start(folder: Path, work: Callable[[Path, Connection], None], dies_at: int | None = None) -> Killable:
    """Run ``work`` on ``folder`` in a process of its own, from a process that imported everything. ``dies_at``: after
    how many lines of this project's code, from when it is ready, it kills itself; 0: never, but it counts them."""
    context = fork_context()
    ours, theirs = context.Pipe(duplex=False)
    said = folder / "stderr"
    process = context.Process(target=_at_work, args=(folder, theirs, work, said, dies_at), daemon=True)
    process.start()
    theirs.close()
    return Killable(process, ours, said)


def _at_work(
    folder: Path, ready: Connection, work: Callable[[Path, Connection], None], said: Path, dies_at: int | None
) -> None:
    """What the process says goes to ``said``, after what its predecessors said."""
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(output, standard)
    if dies_at is not None:
        LINES.append(dies_at)
    work(folder, ready)


#: Of a process that counts its lines: at which it dies, and then how many there were.
LINES: list[int] = []


def _count_lines() -> None:
    """From here on, count the lines of this project's code that this thread runs, and die at the one in ``LINES``."""
    if not LINES:
        return
    dies_at, here = LINES[0], str(Path(__file__).parents[1])
    LINES.append(0)

    def called(frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return lines if name.startswith(here) and "site-packages" not in name else None

    def lines(frame: Any, event: str, argument: Any) -> Any:
        if event == "line":
            LINES[1] += 1
            if LINES[1] == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return lines

    sys.settrace(called)


def leave(folder: Path, name: str, line: str) -> None:
    """Add a line to a file; the kernel has it when this returns, so that it outlives the process."""
    handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def left(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split("\n")[:-1] if path.exists() else []


def rounds_of_a_node(folder: Path, ready: Connection) -> None:
    """Answer every exchange of the plan in ``folder/plan.json``, in order, from the first that is not finished."""
    import torch

    from fedsecure.errors import PrivacyBudgetExceeded
    from fedsecure.plan import Plan

    torch.set_num_threads(1)
    plan = Plan.model_validate_json((folder / "plan.json").read_bytes())
    with _desk(folder, plan) as desk:
        ready.send("ready")
        _count_lines()
        try:
            for round_ in range(plan.rounds):
                if not _acknowledged(folder, round_):
                    _answer(folder, desk, plan, round_)
        except PrivacyBudgetExceeded:
            os._exit(SPENT)
    os._exit(DONE)


def arrived(folder: Path) -> list[Path]:
    """The contributions that came in whole."""
    return [path for path in (folder / "uploads").iterdir() if not path.suffix]


def _acknowledged(folder: Path, round_: int) -> bool:
    return (folder / "uploads" / str(round_)).exists()


def _answer(folder: Path, desk: Any, plan: Any, round_: int) -> None:
    from fedsecure.wire.v1 import coordinator_pb2 as pb
    from fedsecure_node.link.connect import Link
    from fedsecure_node.log.records import Destination
    from fedsecure_node.store.store import now_ms

    sent = (folder / "broadcast.bin").read_bytes()
    work = pb.Exchange(
        plan_digest=plan.digest(),
        round=round_,
        exchange=desk.method(plan).exchanges[0],
        broadcast_digest=hashlib.sha256(sent).hexdigest(),
        broadcast_bytes=len(sent),
        deadline_unix_ms=now_ms() + 600_000,
    )
    desk.answer(work, Link(_Coordinator(folder, sent, round_), Destination("none", "none"), 0, 100))  # type: ignore[arg-type]


class _Coordinator:
    """What a coordinator would send lies ready; what it gets it keeps."""

    def __init__(self, folder: Path, sent: bytes, round_: int) -> None:
        self._folder, self._sent, self._round = folder, sent, round_

    def download(self, digest: str, size: int) -> bytes:
        return self._sent

    def upload(self, cleared: Any) -> None:
        path = self._folder / "uploads" / str(self._round)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(cleared.payload.data)
        if LINES:
            leave(self._folder, "lines", str(LINES[1]))
        part.rename(path)


def _desk(folder: Path, plan: Any) -> Any:
    """The desk that answers exchanges, as the daemon puts it together; a context manager."""
    import io
    from contextlib import contextmanager

    from fedsecure_node.assemble import LocalData, Purse, SpendingDesk, open_log
    from fedsecure_node.auditing.auditor import Auditor
    from fedsecure_node.computing import Computation
    from fedsecure_node.egress import Gate
    from fedsecure_node.masking.pins import Pins
    from fedsecure_node.masking.terms import MaskTerms
    from fedsecure_node.plans.institution import PolicyWatch
    from fedsecure_node.progress import PlainReporter
    from fedsecure_node.settings import NodeSettings
    from fedsecure_node.store.store import Store
    from fedsecure_node.work import ExchangeDesk

    settings = NodeSettings.model_validate_json((folder / "settings.json").read_bytes())

    @contextmanager
    def opened() -> Any:
        with Store(settings.store) as store:
            store.clean()
            log = open_log(store, settings)
            log.recover()
            reporter = PlainReporter(io.StringIO())
            purse = Purse(settings.ledger, log, node_id=settings.node)
            purse.check()
            spending = SpendingDesk(store, purse, reporter, data=LocalData(settings.data, lambda lines: None))
            pins = Pins(store, node=settings.node, federation=settings.federation, public_bytes=bytes(32))
            gate = Gate(store, log, node_id=settings.node, hold=False)
            yield ExchangeDesk(
                store,
                gate,
                reporter,
                Computation(
                    store,
                    gate,
                    reporter,
                    threading.Event(),
                    node_id=settings.node,
                    spending=spending,
                    device="cpu",
                ),
                node_id=settings.node,
                watch=PolicyWatch(settings.policy),
                terms=MaskTerms(store.sessions, pins, node_id=settings.node),
                build_method=lambda p: _Witnessed(folder, p),  # type: ignore[arg-type,return-value]
                spending=spending,
                auditor=Auditor(store, reporter),
            )

    return opened()


class _Witnessed:
    """The plan's method, which leaves evidence before it looks at a record."""

    def __init__(self, folder: Path, plan: Any) -> None:
        from fedsecure.methods import build_method

        self._folder, self._method = folder, build_method(plan)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def client_update(self, exchange: str, broadcast: Any, local: Any, data: Any, ctx: Any) -> Any:
        leave(self._folder, "evidence", f"{ctx.round} {exchange}")
        return self._method.client_update(exchange, broadcast, local, data, ctx)
