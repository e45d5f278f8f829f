"""What an operator sees of sessions: lines of the log, where one stands now, and what came of those before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fedsecure.text import counted
from fedsecure_coordinator.store.journal import Journal, RunRow

__all__ = ["MASKING_WORDS", "Event", "masked_rounds", "session_line", "session_view"]

#: Of a run's history: milliseconds, kind, detail.
Event = tuple[int, str, dict[str, Any]]
#: The legs, by what nodes do in them.
LEGS = ("keys", "shares", "masked vectors", "survivors", "unmasking")


def session_view(journal: Journal, row: RunRow) -> dict[str, Any] | None:
    """Where the session of a run that is being aggregated stands, as JSON: its number from 1, the leg that is open
    (from 0), who answered the one before, and who is out so far, and why. ``None`` without one."""
    found: dict[str, Any] | None = None
    for _, kind, detail in journal.events(row.digest):
        if kind == "session":
            number, invited = detail["session"] + 1, detail["invited"]
            found = {"session": number, "leg": 0, "answered": [], "invited": invited, "dropped": {}}
        elif kind == "session-leg" and found is not None:
            out = {**found["dropped"], **detail["dropped"]}
            found = {**found, "leg": detail["leg"] + 1, "answered": detail["nodes"], "dropped": out}
        elif kind in ("aggregating", "session-failed", "masked-sum", "skipped"):
            found = None
    return found


def session_line(session: dict[str, Any]) -> str:
    """It in words, as in "session 1: masked vectors (leg 2), asked of a, b, c". Who of them answered already only the
    daemon knows."""
    leg = min(session["leg"], len(LEGS) - 1)
    still = session["answered"] or session["invited"]
    out = f"; out: {', '.join(session['dropped'])}" if session["dropped"] else ""
    return f"session {session['session']}: {LEGS[leg]} (leg {leg}), asked of {', '.join(still)}{out}"


def masked_rounds(events: Iterable[Event]) -> dict[int, list[dict[str, Any]]]:
    """Round -> its masked sums: exchange, whose contributions are in the sum, and who dropped out and why."""
    found: dict[int, list[dict[str, Any]]] = {}
    for _, kind, detail in events:
        if kind == "masked-sum":
            kept = {name: detail[name] for name in ("exchange", "survivors", "dropped", "clipped")}
            found.setdefault(detail["round"], []).append(kept)
    return found


def _at(detail: dict[str, Any]) -> str:
    number = f", session {detail['session'] + 1}" if "session" in detail else ""
    return f"round {detail['round'] + 1}, {detail['exchange']}{number}"


def _out(dropped: dict[str, str]) -> str:
    return "".join(f"; out: {node} ({why})" if why else f"; out: {node}" for node, why in dropped.items())


def _sum_words(detail: dict[str, Any]) -> str:
    clipped = f"; {counted(detail['clipped'], 'value')} clipped" if detail["clipped"] else ""
    noticed = "".join(f"; {finding}" for finding in detail["findings"])
    return f"{_at(detail)}: masked sum of {', '.join(detail['survivors'])}{_out(detail['dropped'])}{clipped}{noticed}"


MASKING_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "session": lambda d: (
        f"{_at(d)}: sums under masks, with {', '.join(d['invited'])}; no sum is over fewer than "
        f"{d.get('least', d['threshold'])}"
    ),
    "session-leg": lambda d: (
        f"{_at(d)}: {LEGS[d['leg']]} (leg {d['leg']}) of {', '.join(d['nodes']) or 'nobody'}{_out(d['dropped'])}"
    ),
    "session-failed": lambda d: f"{_at(d)}: no sum: {d['reason']}",
    "masked-sum": _sum_words,
    "skipped": lambda d: f"{_at(d)}: its sum is lost, and the round is skipped: {d['reason']}",
}
