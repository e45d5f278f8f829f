"""A node's work on the exchanges of a private run, in processes that are forked to be killed.

A process does what the daemon does with an exchange that it was asked for: its own store, log, ledger, gate and method,
on its own disk. Only the connection is none: what a coordinator would send lies ready, what it would receive is
acknowledged. Each computation and each drawing of counts leaves a line in ``evidence`` as it begins, by which a test
knows what was made of the records, whatever became of it.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: What every process needs, imported once.
IMPORTED = [
    "torch",
    "opacus",
    "scipy.special",
    "fedsecure.privacy.dpsgd",
    "fedsecure.methods",
    "fedsecure_node.assemble",
]
#: Exit codes of a process that was not killed: all rounds are done; the budget is spent.
DONE, SPENT = 0, 5


@dataclass(frozen=True)
class Killable:
    """One process at work in ``folder``; ``ready`` once it has opened everything."""

    process: Any
    ready: Connection

    def kill(self) -> int:
        """Kill -9; returns how the process ended, which may have been before."""
        self.process.kill()
        return self.end()

    def end(self, seconds: float = 60.0) -> int:
        self.process.join(seconds)
        assert self.process.exitcode is not None, "the process did not end"
        self.ready.close()
        return int(self.process.exitcode)


def start(folder: Path, work: Callable[[Path, Connection], None]) -> Killable:
    """Run ``work`` on ``folder`` in a process of its own, from a process that imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(folder, theirs))
    process.start()
    theirs.close()
    return Killable(process, ours)


def leave_evidence(folder: Path, line: str) -> None:
    """Add a line; the kernel has it when this returns, so that it outlives the process."""
    handle = os.open(folder / "evidence", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, f"{line}\n".encode())
    os.close(handle)


def evidence(folder: Path) -> list[str]:
    path = folder / "evidence"
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
        try:
            for round_ in range(plan.rounds):
                if not _acknowledged(folder, round_):
                    _answer(folder, desk, plan, round_)
        except PrivacyBudgetExceeded:
            os._exit(SPENT)
    os._exit(DONE)


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
        part.rename(path)


def _desk(folder: Path, plan: Any) -> Any:
    """The desk that answers exchanges, as the daemon puts it together; a context manager."""
    import io
    from contextlib import contextmanager

    from fedsecure_node.assemble import LocalData, Purse, SpendingDesk, open_log
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
            yield ExchangeDesk(
                store,
                Gate(store, log, node_id=settings.node, hold=False),
                reporter,
                threading.Event(),
                node_id=settings.node,
                watch=PolicyWatch(settings.policy),
                terms=MaskTerms(store.sessions, pins, node_id=settings.node),
                build_method=lambda p: _Witnessed(folder, p),  # type: ignore[arg-type,return-value]
                spending=spending,
                device="cpu",
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
        leave_evidence(self._folder, f"{ctx.round} {exchange}")
        return self._method.client_update(exchange, broadcast, local, data, ctx)
