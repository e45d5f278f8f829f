"""What happened to a run, as the journal and the operator's display record it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedsecure.rounds.events import (
    Abort,
    Action,
    AdmitNode,
    Aggregate,
    AttemptFailed,
    Complete,
    ContributionAccepted,
    Event,
    NameStragglers,
    NodeJoined,
    NodeLeft,
    SkipRound,
    StartExchange,
)

__all__ = ["Notice", "describe"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened to a run. ``kind`` and ``detail`` are those of the journal's events."""

    digest: str
    name: str
    kind: str
    detail: dict[str, Any]


def describe(happening: Event | Action, *, masked: bool = False) -> tuple[str, dict[str, Any]] | None:
    """Kind and detail of an event or action; ``None`` for one that nobody needs to hear of. ``masked``: contributions
    come without what is summed."""
    match happening:
        case NodeJoined(node):
            return "joined", {"node": node}
        case NodeLeft(node, reason):
            return "left", {"node": node, "reason": reason}
        case ContributionAccepted(node, round_, exchange, attempt, digest):
            where = {"round": round_, "exchange": exchange, "attempt": attempt}
            return "contribution", {"node": node, **where, "digest": digest} | ({"masked": True} if masked else {})
        case AttemptFailed(reason):
            return "attempt-failed", {"reason": reason}
        case StartExchange(round_, exchange, attempt, cohort):
            return "exchange", {"round": round_, "exchange": exchange, "attempt": attempt, "cohort": list(cohort)}
        case AdmitNode(node, round_, exchange, attempt):
            return "admitted", {"node": node, "round": round_, "exchange": exchange, "attempt": attempt}
        case NameStragglers(round_, exchange, nodes):
            return "stragglers", {"round": round_, "exchange": exchange, "nodes": list(nodes)}
        case Aggregate(round_, exchange, _, contributors):
            return "aggregating", {"round": round_, "exchange": exchange, "contributors": list(contributors)}
        case SkipRound(round_, exchange, reason):
            return "skipped", {"round": round_, "exchange": exchange, "reason": reason}
        case Complete():
            return "completed", {}
        case Abort(reason, missing, detail):
            return "aborted", {"reason": f"{reason}: {detail}", "missing": list(missing)}
        case _:
            return None
