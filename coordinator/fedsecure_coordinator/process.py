"""The daemon with everything a process adds: signals, the operator's display, standard error, torch, the exit."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedsecure.errors import FedSecureError, RunAborted
from fedsecure.method import Method
from fedsecure.plan import Plan
from fedsecure.signals import stop_on_signals
from fedsecure_coordinator.cohorts.manifests import FOLDER, Cohorts
from fedsecure_coordinator.daemon import Daemon
from fedsecure_coordinator.settings import load_settings
from fedsecure_coordinator.setup import submit_plan
from fedsecure_coordinator.store.journal import RunRow
from fedsecure_coordinator.views.progress import LogFormat, Progress
from fedsecure_coordinator.views.runs import run_view
from fedsecure_coordinator.views.spoken import real_stderr
from fedsecure_coordinator.work.evaluation import evaluator

__all__ = ["run_daemon"]

#: The live table shows the runs that go on, and this many of the last that ended.
SHOWN = 10
#: What an orderly end may take, calls and an update included, before the process is left (seconds).
STOP_SECONDS = 25.0


def run_daemon(
    folder: Path,
    *,
    plans: Sequence[Path],
    exit_when_done: bool,
    log_format: LogFormat,
    show: Callable[[FedSecureError], object],
) -> None:
    """Run until a signal, or with ``exit_when_done`` until all runs ended.

    Raises what ``load_settings``, ``Daemon`` and ``submit_plan`` raise, and ``RunAborted`` when, with
    ``exit_when_done``, a run was aborted; where the process has to end at once, ``show`` prints it instead. With JSON
    logs an error is one more record, and ``SystemExit`` its exit code.
    """
    started: list[Daemon] = []
    fault: FedSecureError | None = None
    code = 0
    with real_stderr() as stream:
        progress = Progress(stream, log_format, lambda: _views(started))
        with progress.showing():
            try:
                _serve(folder, started, progress, plans, exit_when_done)
            except FedSecureError as error:
                fault, code = error, error.exit_code
            except Exception as error:
                if log_format == "text":
                    raise
                code = 1
                fields = {"event": "crashed", "exit_code": code, "traceback": traceback.format_exc()}
                progress.line(f"{type(error).__name__}: {error}", fields, "critical")
            if fault is not None and log_format == "json":
                fields = {"event": "failed", "error": type(fault).__name__, "hint": fault.hint, "exit_code": code}
                progress.line(str(fault), fields, "error")
                fault = None
    if any(daemon.computing() for daemon in started):
        if fault is not None:
            show(fault)
        _leave(code)
    if fault is not None:
        raise fault
    if code:
        raise SystemExit(code)


def _serve(
    folder: Path, started: list[Daemon], progress: Progress, plans: Sequence[Path], exit_when_done: bool
) -> None:
    settings = load_settings(folder)
    daemon = Daemon(
        settings,
        _build_method,
        evaluate=evaluator(settings.evaluation),
        listen=progress.notice,
        warm_up=settings.compute.apply,
    )
    with stop_on_signals(daemon.stop, grace=STOP_SECONDS, last_words=_last_words), daemon:
        started.append(daemon)
        for path in plans:
            cohorts = Cohorts(settings.store / FOLDER)
            row, _ = submit_plan(daemon.journal, path, max_nodes=settings.limits.max_nodes, cohorts=cohorts)
            if row.ended:
                over = f"{row.name} ({row.digest[:12]}): is over already: {row.phase}"
                text = f"{over}; change its name or seed; under masks, its seed"
                progress.line(text, {"event": "over", "run": row.digest, "state": row.phase}, "warning")
        where = f"{settings.listen.rpartition(':')[0]}:{daemon.port}"
        progress.line(
            f"ready: federation {settings.federation}, listening on {where}", {"event": "ready", "port": daemon.port}
        )
        stopped = daemon.serve(exit_when_done=exit_when_done)
        progress.line("stopping", {"event": "stopping"})
        aborted = [r for r in daemon.journal.runs() if r.phase == "ABORTED"]
    if exit_when_done and not stopped and aborted:
        raise _run_aborted(aborted)


def _last_words(grace: float) -> str:
    """What the log says, by way of standard error, of a daemon that is left as it is."""
    return f"the coordinator did not stop within {grace:g} s: its process is left at once; its store is whole"


def _run_aborted(rows: Sequence[RunRow]) -> RunAborted:
    first = rows[0]
    return RunAborted(
        f"run {first.digest[:12]} ({first.name}) was aborted: {first.reason}"
        + (f"; and {len(rows) - 1} more" if len(rows) > 1 else ""),
        hint="see `fedsecure coordinator status`",
    )


def _views(started: Sequence[Daemon]) -> list[dict[str, Any]]:
    if not started:  # not listening yet
        return []
    journal = started[0].journal
    rows = sorted(journal.runs(), key=lambda r: (r.ended, -r.created_ms))
    return [run_view(journal, r) for r in rows[:SHOWN]]


def _leave(code: int) -> None:
    """End the process here and now: a computation that cannot be interrupted goes on in a thread, and the interpreter's
    own end would wait for it or tear it down in the middle. What it computes is made again after the next start."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _build_method(plan: Plan) -> Method:
    from fedsecure.methods import build_method

    return build_method(plan)
