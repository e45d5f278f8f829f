"""A run as an operator sees it, read from the journal: for ``status``, ``runs``, the live view and the model card."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure.rounds.state import RoundState
from fedsecure.text import counted
from fedsecure_coordinator.masking.views import MASKING_WORDS, masked_rounds, session_view
from fedsecure_coordinator.runs.run import run_state
from fedsecure_coordinator.store.journal import Journal, RunRow

__all__ = ["counted_from_1", "figures", "find_run", "moment", "run_summary", "run_view", "sentence"]


def moment(milliseconds: int) -> str | None:
    """ISO 8601 in UTC, to the second; ``None`` for 0."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if milliseconds else None


def find_run(journal: Journal, text: str) -> RunRow:
    """The run that ``text`` names: by its digest, a prefix of it, or its plan's name.

    Raises ``ConfigError`` when there is none or more than one.
    """
    rows = journal.runs()
    found = [r for r in rows if r.digest == text] or [r for r in rows if r.name == text]
    found = found or [r for r in rows if text and r.digest.startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"run {text[:64]!r}: no such run", hint="see `fedsecure coordinator runs`")
    which = ", ".join(f"{r.digest[:12]} ({r.name})" for r in found[:5])
    raise ConfigError(f"run {text[:64]!r}: names {len(found)} runs: {which}", hint="give more of the digest")


def run_summary(row: RunRow) -> dict[str, Any]:
    """One line of a list of runs, as JSON. ``skipped``: the rounds (from 1) whose masked sum was lost."""
    return {
        "digest": row.digest,
        "name": row.name,
        "state": row.phase,
        "submitted": moment(row.created_ms),
        "ended": moment(row.ended_ms),
        "reason": row.reason,
        "skipped": [round_ + 1 for round_ in run_state(row).skipped],
    }


def run_view(journal: Journal, row: RunRow) -> dict[str, Any]:
    """Everything about a run, as JSON. Rounds count from 1, as people do."""
    plan = json.loads(row.canonical)  # as it was written: also a plan that this version cannot run any more
    state = RoundState.model_validate_json(row.machine) if row.machine else RoundState()
    members = journal.members(row.digest)
    deadlines = sorted(json.loads(row.deadlines).values())
    running = row.phase in ("EXCHANGE", "AGGREGATING")
    return {
        **run_summary(row),
        "method": plan["method"]["name"],
        "preset": plan["preset"],
        "round": state.round + 1 if running or row.ended else 0,
        "rounds": plan["rounds"],
        "exchange": row.exchange if running else "",
        "attempt": state.attempt + 1 if running else 0,
        "deadline": moment(deadlines[0]) if deadlines else None,
        "min_nodes": plan["cohort"]["min_nodes"],
        "nodes": {
            "named": plan["cohort"]["nodes"],
            "joined": [n for n, (joined, _) in members.items() if joined],
            "refused": {n: why for n, (joined, why) in members.items() if not joined},
            "cohort": list(state.cohort) if running else [],
            "contributed": sorted(state.contributed) if running else [],
            "missing": list(state.missing),
        },
        "cohort": journal.cohort(row.digest),
        "session": session_view(journal, row) if row.phase == "AGGREGATING" else None,
        "history": _history(journal, row),
    }


def _history(journal: Journal, row: RunRow) -> list[dict[str, Any]]:
    """The rounds so far: cohort, stragglers, figures, bytes of each node, and why it was skipped (or ``None``)."""
    metrics, traffic = journal.metrics(row.digest), journal.traffic(row.digest)
    events = journal.events(row.digest)
    masked = masked_rounds(events)
    cohorts: dict[int, set[str]] = {}
    late: dict[int, set[str]] = {}
    skipped: dict[int, str] = {}
    for _, kind, detail in events:
        if kind == "exchange":
            cohorts.setdefault(detail["round"], set()).update(detail["cohort"])
        elif kind == "admitted":
            cohorts.setdefault(detail["round"], set()).add(detail["node"])
        elif kind == "stragglers":
            late.setdefault(detail["round"], set()).update(detail["nodes"])
        elif kind == "skipped":
            skipped[detail["round"]] = detail["reason"]
    return [
        {
            "round": round_ + 1,
            "cohort": sorted(cohorts[round_]),
            "stragglers": sorted(late.get(round_, ())),
            "masked": masked.get(round_, []),
            "skipped": skipped.get(round_),
            "metrics": metrics.get(round_, {}),
            "bytes_up": {n: up for n, (up, _) in traffic.get(round_, {}).items()},
            "bytes_down": {n: down for n, (_, down) in traffic.get(round_, {}).items()},
        }
        for round_ in sorted(cohorts)
    ]


def counted_from_1(detail: dict[str, Any]) -> dict[str, Any]:
    """A notice's detail as a log shows it: ``round``, ``attempt`` and ``session`` count from 1, as in
    ``status --json``; legs count from 0, as the protocol has them."""
    return {name: value + 1 if name in ("round", "attempt", "session") else value for name, value in detail.items()}


def sentence(kind: str, detail: dict[str, Any]) -> str:
    """A notice in words. Rounds count from 1."""
    return _WORDS[kind](detail) if kind in _WORDS else kind


def _at(detail: dict[str, Any]) -> str:
    again = f", attempt {detail['attempt'] + 1}" if detail.get("attempt") else ""
    return f"round {detail['round'] + 1}, {detail['exchange']}{again}"


def figures(metrics: dict[str, float | None]) -> str:
    """The figures of a round that fit a line; those of single classes are left to the model card."""
    shown = {n: v for n, v in metrics.items() if "." not in n}
    return ", ".join(f"{n} {'not finite' if v is None else format(v, '.4g')}" for n, v in shown.items()) or "no figures"


_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "opened": lambda d: (
        f"open to nodes, {counted(d['rounds'], 'round')}"
        + f", sums masked in cohort {d.get('cohort', '')[:12]}" * ("cohort" in d)
    ),
    "resumed": lambda d: f"resumed: {d['where']}",
    "joined": lambda d: f"{d['node']} joined",
    "left": lambda d: f"{d['node']} takes no part: {d['reason']}",
    "exchange": lambda d: f"{_at(d)}: waiting for {', '.join(d['cohort'])}",
    "admitted": lambda d: f"{_at(d)}: waiting for {d['node']} as well",
    "contribution": lambda d: (
        f"{_at(d)}: {d['node']} " + ("is ready, under masks" if d.get("masked") else f"contributed {d['digest'][:12]}")
    ),
    "stragglers": lambda d: f"{_at(d)}: too late: {', '.join(d['nodes'])}",
    "aggregating": lambda d: f"{_at(d)}: aggregating {counted(len(d['contributors']), 'contribution')}",
    "attempt-failed": lambda d: f"contributions cannot be summed: {d['reason']}",
    "not-evaluated": lambda d: f"not evaluated: {d['reason']}",
    "round": lambda d: f"round {d['round'] + 1} done: {figures(d['metrics'])}",
    **MASKING_WORDS,
    "completed": lambda d: "COMPLETED",
    "aborted": lambda d: f"ABORTED: {d['reason']}",
}
