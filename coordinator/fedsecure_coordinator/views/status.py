"""``coordinator status``: the daemon and its runs, once or live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fedsecure.locks import is_held
from fedsecure.text import counted
from fedsecure_coordinator.masking.views import session_line
from fedsecure_coordinator.settings import CoordinatorSettings
from fedsecure_coordinator.store.journal import Journal, Served
from fedsecure_coordinator.views.progress import runs_table
from fedsecure_coordinator.views.runs import figures, run_view

__all__ = ["show_live", "status_lines", "status_of"]

#: How often the live view looks again (seconds).
REFRESH_SECONDS = 1.0


def status_of(settings: CoordinatorSettings, journal: Journal) -> dict[str, Any]:
    """Everything, as JSON."""
    running = is_held(settings.store)
    published, served = journal.published(), journal.served() if running else []
    return {
        "federation": settings.federation,
        "listen": settings.listen,
        "daemon": "running" if running else "stopped",
        "runs": [
            {**run_view(journal, row), "serving": _serving(row.digest, served) if row.digest in published else None}
            for row in journal.runs()
        ],
    }


def _serving(digest: str, served: list[Served]) -> dict[str, Any]:
    """Node -> whether it asks for queries, and what became of those that it was asked since the daemon began."""
    return {
        row.node: {"reachable": row.reachable, "relayed": row.answered, "unreachable": row.unreachable}
        for row in served
        if row.digest == digest
    }


def status_lines(status: dict[str, Any]) -> Iterator[str]:
    """It as lines of text."""
    yield _headline(status)
    for run in status["runs"]:
        nodes = run["nodes"]
        at = f"round {run['round']}/{run['rounds']}"
        yield f"{run['digest'][:12]}  {run['name']}  {run['method']}  {run['state']}  {at}"
        if run["reason"]:
            yield f"    reason: {run['reason']}"
        yield f"    joined: {', '.join(nodes['joined']) or 'nobody'}"
        for node, why in nodes["refused"].items():
            yield f"    refused: {node}: {why}"
        if nodes["cohort"]:
            yield f"    {run['exchange']}: {_waits_for(run)}"
        for entry in run["history"][-3:]:
            late = f"; too late: {', '.join(entry['stragglers'])}" if entry["stragglers"] else ""
            masked = "".join(f"; {s['exchange']}: masked sum of {', '.join(s['survivors'])}" for s in entry["masked"])
            done = f"skipped: {entry['skipped']}" if entry["skipped"] else figures(entry["metrics"])
            yield f"    round {entry['round']}: {done}{late}{masked}"
        if run.get("serving") is not None:
            who = [_serves(node, counts) for node, counts in run["serving"].items()]
            yield f"    queries: {'; '.join(who) or 'nobody serves'}"


def _serves(node: str, counts: dict[str, Any]) -> str:
    there = "" if counts["reachable"] else " (away)"
    return f"{node}{there}: {counts['relayed']} relayed, {counts['unreachable']} unreachable"


def _waits_for(run: dict[str, Any]) -> str:
    """What the current exchange waits for."""
    if run["state"] == "AGGREGATING":
        under_masks = f", {session_line(run['session'])}" if run["session"] else ""
        return f"aggregating {counted(len(run['nodes']['contributed']), 'contribution')}{under_masks}"
    waiting = sorted(set(run["nodes"]["cohort"]) - set(run["nodes"]["contributed"]))
    return f"due from {', '.join(waiting) or 'nobody'} until {run['deadline'] or '-'}"


def show_live(status: Callable[[], dict[str, Any]]) -> None:
    """Show it until Ctrl-C."""

    def view() -> Group:
        now = status()
        return Group(Text(_headline(now)), runs_table(now["runs"]))

    try:
        with Live(view(), console=Console(), auto_refresh=False) as live:
            while True:
                time.sleep(REFRESH_SECONDS)
                live.update(view(), refresh=True)
    except KeyboardInterrupt:
        return


def _headline(status: dict[str, Any]) -> str:
    where = f"coordinator of {status['federation']}, {status['listen']}"
    return f"{where}: daemon {status['daemon']}, {counted(len(status['runs']), 'run')}"
