"""Sums that are lost for good: too many nodes gave their shares, the sum was not kept, and no node helps to unmask
another one of the same contributions, nor, in a later round, one of the same model over other nodes. Or too many nodes
began all the sessions that they begin for one sum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fedsecure.rounds.events import SumLost, UpdateFailed
from fedsecure.secagg.machines.memory import MOST_SESSIONS
from fedsecure_coordinator.masking.session import VECTORS, Session
from fedsecure_coordinator.masking.task import Task
from fedsecure_coordinator.masking.views import Event

__all__ = ["lost", "nodes_of_a_lost_sum", "to_invite"]

SPENT = (
    "too many nodes gave their unmasking shares before the sum was kept (the coordinator was restarted in between?), "
    "and no node helps to unmask a second sum of one exchange, or of one model over other nodes"
)
WORN = (
    f"too many nodes began all {MOST_SESSIONS} sessions that they begin for one sum (the coordinator was restarted in "
    "session after session?)"
)
#: What is left to a run whose last round is lost.
SUBMIT = "submit the plan again with another seed"
#: The leg in which survivors are confirmed: once it is over, shares are asked for.
CONFIRMED = 3


def lost(task: Task, session: Session, reasons: Sequence[str]) -> SumLost | UpdateFailed:
    """What becomes of a run whose sessions ended by ``reasons``, ``session`` the last of them, and which has too few
    nodes left for another one.

    A sum that was unmasked and is none that its contributors can have given ends the run: it is not lost.
    """
    bad = [reason for reason in reasons if reason.startswith("BAD_SUM")]
    cause = "; ".join(text for text, nodes in ((SPENT, session.spent), (WORN, session.worn)) if nodes)
    ending = f"{cause}: {SUBMIT}" if task.is_last or bad else cause
    # a session of this process that took their shares knows why they gave no sum
    why = f"{(bad or reasons)[0]}; {ending}" if len(reasons) > 1 else f"{ending} (the last session: {reasons[-1]})"
    return UpdateFailed(why) if bad else SumLost(why)


def nodes_of_a_lost_sum(events: Iterable[Event]) -> tuple[str, ...]:
    """The nodes of the last sum that shares were asked for and that is lost, by a run's history; none when a sum was
    read since, or none was lost."""
    vectors: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    for _, kind, detail in events:
        if kind == "session-leg" and detail["leg"] == VECTORS:
            vectors = tuple(detail["nodes"])
        elif kind == "session-leg" and detail["leg"] == CONFIRMED:
            asked = vectors
        elif kind == "skipped":
            found, asked = asked or found, ()
        elif kind == "masked-sum":
            found = asked = ()
    return found


def to_invite(contributors: Sequence[str], events: Iterable[Event]) -> tuple[str, ...]:
    """Whom to sum of ``contributors``: after a lost sum its nodes alone, if all of them contributed again, since those
    who gave shares help with no other sum of the same model."""
    before = nodes_of_a_lost_sum(events)
    return before if before and set(before) <= set(contributors) else tuple(contributors)
