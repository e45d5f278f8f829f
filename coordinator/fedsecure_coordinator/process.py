"""The daemon with everything a process adds: signals, the operator's display, torch."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure_coordinator.daemon import Daemon
from fedsecure_coordinator.evaluation import evaluator
from fedsecure_coordinator.journal import RunRow
from fedsecure_coordinator.progress import LogFormat, Progress
from fedsecure_coordinator.settings import CoordinatorSettings
from fedsecure_coordinator.setup import submit_plan
from fedsecure_coordinator.views import run_view

__all__ = ["run_daemon"]

#: The live table shows the runs that go on, and this many of the last that ended.
SHOWN = 10


def run_daemon(
    settings: CoordinatorSettings, *, plans: Sequence[Path], exit_when_done: bool, log_format: LogFormat
) -> list[RunRow]:
    """Run until a signal, or with ``exit_when_done`` until all runs ended; then returns the aborted ones, else none.

    Raises what ``Daemon`` and ``submit_plan`` raise.
    """
    shown: list[Daemon] = []

    def views() -> list[dict[str, Any]]:
        if not shown:  # not listening yet
            return []
        journal = shown[0].journal
        rows = sorted(journal.runs(), key=lambda r: (r.ended, -r.created_ms))
        return [run_view(journal, r) for r in rows[:SHOWN]]

    progress = Progress(sys.stderr, log_format, views)
    daemon = Daemon(
        settings,
        _build_method,
        evaluate=evaluator(settings.evaluation),
        listen=progress.notice,
        warm_up=settings.compute.apply,
    )
    with _signals(daemon), daemon:
        shown.append(daemon)
        for path in plans:
            submit_plan(daemon.journal, path, max_nodes=settings.limits.max_nodes)
        with progress.showing():
            where = f"{settings.listen.rpartition(':')[0]}:{daemon.port}"
            progress.line(
                f"ready: federation {settings.federation}, listening on {where}",
                {"event": "ready", "port": daemon.port},
            )
            stopped = daemon.serve(exit_when_done=exit_when_done)
            progress.line("stopping", {"event": "stopping"})
        ended = [r for r in daemon.journal.runs() if r.phase == "ABORTED"]
    return ended if exit_when_done and not stopped else []


def _build_method(plan: Plan) -> Method:
    from fedsecure.methods import build_method

    return build_method(plan)


@contextmanager
def _signals(daemon: Daemon) -> Iterator[None]:
    """SIGTERM and SIGINT end the daemon in order; a second SIGINT is Python's own again."""

    def stop(number: int, frame: object) -> None:
        daemon.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
